"""Plots of an evaluation: ranks, methods side by side, correlations, confusions of classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ccal.errors import InputError
from ccal.evaluation import ClassReport, CorrelationStructure, Direction, Report
from ccal.reports import style
from ccal.reports.style import INK, MUTED, PAPER, SERIES, WIDE, arrow, label_legend, look, plain

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_CUTS = (1, 5, 10)
_DASHED = (0, (4, 2))
_NAMED = 60


def rank_plot(report: Report | Mapping[str, Report], *, width: float = WIDE) -> Figure:
    """Share of the queries, in %, whose counterpart is among the first k, for every k.

    Draws both directions, marks R@1, R@5 and R@10, and dots the share that guessing would reach.
    Each of several reports by name has a colour; its second direction is dashed. `width` is in
    inches.

    >>> import torch
    >>> from ccal.evaluation import evaluate_embeddings
    >>> report = evaluate_embeddings(torch.eye(9), torch.eye(9).roll(1, 0), bootstrap=0)
    >>> rank_plot(report).axes[0].lines[0].get_ydata()[:2].tolist()
    [0.0, 100.0]
    """
    several = report if isinstance(report, Mapping) else {"": report}
    if not several:
        raise InputError("report is empty: pass a Report, or at least one by name.")
    pairs = {name: (one.x_to_y, one.y_to_x) for name, one in several.items()}
    sizes = {direction.candidates for pair in pairs.values() for direction in pair}
    handles: list[Artist] = []
    labels: list[str] = []
    alone, beside = len(several) == 1, width >= 6
    rows = 0.19 * (2 * len(several) + 1)
    height = max(3.5, 0.4 + rows) if beside else 3.3 if alone else 2.8 + rows
    with style.chart(width, height, "Counterpart among the first k (%)", x="k") as (figure, axes):
        for index, (name, pair) in enumerate(pairs.items()):
            for which, direction in enumerate(pair):
                colour, marker = look(which if alone else index)
                k, share = cumulative(direction)
                (line,) = axes.plot(
                    k,
                    share,
                    color=colour,
                    linestyle="-" if alone or which == 0 else _DASHED,
                    marker=marker,
                    markersize=5.5,
                    markeredgecolor=PAPER,
                    markevery=np.flatnonzero(np.isin(k, _CUTS)).tolist(),
                    zorder=3,
                )
                handles.append(line)
                title = arrow(direction.name, 28)
                labels.append(title if not name else f"{plain(name, 20)}, {title}")
        if len(sizes) == 1:
            # Several counterparts a query, or test sets of several sizes, have no such line.
            (last,) = sizes
            k = np.unique(np.geomspace(1, last, 100).round())
            handles += axes.plot(k, 100 * k / last, color=MUTED, ls=":", linewidth=1.2, zorder=1)
            labels.append("guessing")
        if alone:
            _recalls(axes, *pairs.values())
        _rank_axes(axes, max(sizes))
        place = "best" if alone else "outside right upper" if beside else "outside lower left"
        label_legend(axes if alone else figure, handles, labels, loc=place)
    return figure


def cumulative(direction: Direction) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Some k from 1 to the number of candidates, and the share of ranks up to each, in %.

    Every k up to 10, then about 200 more at equal steps of the logarithm, so that a plot of
    millions of ranks is as small as that of a hundred.
    """
    last = max(direction.candidates, int(direction.ranks.max()))
    steps = np.geomspace(1, last, 200).round().astype(np.int64)
    k = np.unique(np.r_[np.arange(1, min(10, last) + 1), steps, last])
    ranks = np.sort(direction.ranks.numpy(force=True))
    return k, 100.0 * np.searchsorted(ranks, k, side="right") / len(ranks)


def _recalls(axes: Axes, pair: tuple[Direction, Direction]) -> None:
    """R@k in whole %, the higher direction above its marker and the lower one below."""
    for k in _CUTS:
        if k > min(direction.candidates for direction in pair):
            continue
        shares = [getattr(direction.measures, f"r{k}") for direction in pair]
        higher = int(shares[1] > shares[0])
        for which, share in enumerate(shares):
            offset, side = ((0, 5), "bottom") if which == higher else ((0, -5.5), "top")
            place = {"ha": "center", "va": side, "zorder": 4}
            style.remark(axes, f"{share:.0f}", (k, share), offset, color=SERIES[which], **place)


def _rank_axes(axes: Axes, last: int) -> None:
    axes.set_xscale("log")
    axes.set_xlim(0.85, max(2, last) * 1.12)
    axes.set_ylim(-7, 104)
    axes.set_yticks(range(0, 101, 20))
    ticks = [tick for tick in (*_CUTS, *(10**e for e in range(2, 12))) if tick <= last]
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.minorticks_off()
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="x", labelcolor=INK)


def comparison_plot(
    reports_by_method: Mapping[str, Sequence[Report]], *, width: float = WIDE
) -> Figure:
    """MRR of each method in both directions: the mean, the seeds, and the 95% interval.

    A method has one `Report` a seed. The large marker is the mean over the seeds, the small dots
    are the seeds (how much luck there is in training), and the whisker is the mean of their
    bootstrap intervals (how much luck there is in the choice of test queries). `width` is in
    inches.

    >>> import torch
    >>> from ccal.evaluation import evaluate_embeddings
    >>> report = evaluate_embeddings(torch.eye(9), torch.eye(9), bootstrap=0)
    >>> [t.get_text() for t in comparison_plot({"CCAL": [report]}).axes[0].get_yticklabels()]
    ['CCAL']
    """
    check_methods(reports_by_method)
    count = len(reports_by_method)
    limit, room = (30, 0.08) if width >= 6 else (19, 0.16)
    handles: list[Artist] = []
    with style.chart(width, 1.5 + 0.52 * count, "MRR (%)", grid="x") as (figure, axes):
        for row, reports in enumerate(reports_by_method.values()):
            handles.append(_draw_seeds(axes, row - 0.17, 0, [r.x_to_y for r in reports]))
            handles.append(_draw_seeds(axes, row + 0.17, 1, [r.y_to_x for r in reports]))
        names = [plain(method, limit) for method in reports_by_method]
        axes.set_yticks(range(count), names, color=INK)
        axes.set_ylim(count - 0.4, -0.6)
        low, high = max(0.0, axes.get_xlim()[0]), axes.get_xlim()[1]
        # Room for the numbers at the right ends of the whiskers.
        axes.set_xlim(low, high + room * (high - low))
        axes.spines["left"].set_visible(False)
        first = next(iter(reports_by_method.values()))[0]
        labels = [arrow(direction.name, 24) for direction in (first.x_to_y, first.y_to_x)]
        label_legend(figure, handles[:2], labels, loc="outside lower left", ncols=2)
    return figure


def check_methods(reports_by_method: Mapping[str, Sequence[Report]]) -> None:
    """Refuse an empty comparison, and methods without a report."""
    if not reports_by_method:
        raise InputError("reports_by_method is empty: pass at least one method's reports.")
    empty = [method for method, reports in reports_by_method.items() if not reports]
    if empty:
        raise InputError(f"Every method needs at least one Report, but {empty} have none.")


def _draw_seeds(axes: Axes, height: float, which: int, seeds: Sequence[Direction]) -> Artist:
    values = [seed.measures.mrr for seed in seeds]
    mean = sum(values) / len(values)
    colour, marker = look(which)
    lows = [seed.low.mrr for seed in seeds if seed.low is not None]
    highs = [seed.high.mrr for seed in seeds if seed.high is not None]
    end = max(values)
    if len(lows) == len(highs) == len(seeds):
        low, high = sum(lows) / len(lows), sum(highs) / len(highs)
        axes.plot([low, high], [height] * 2, color=colour, linewidth=1.4, solid_capstyle="round")
        end = max(end, high)
    if len(values) > 1:
        # Below the whisker: seeds that agree would hide under the mean.
        below = [height + 0.1] * len(values)
        axes.plot(values, below, "o", color=colour, alpha=0.75, markersize=2.6, markeredgewidth=0)
    (point,) = axes.plot(
        [mean], [height], marker, markersize=6.5, color=colour, markeredgecolor=PAPER, zorder=4
    )
    style.remark(axes, f"{mean:.1f}", (end, height), (5, 0), va="center", color=colour)
    return point


def correlation_plot(
    structures: Mapping[str, CorrelationStructure], *, width: float = WIDE
) -> Figure:
    """Canonical correlation against dimension, one colour a method; means in the legend.

    The figure of the paper's appendix. Solid: on the training pairs; dashed: the same directions on
    held-out pairs; dotted: the mean that independent views of that size would show in training.
    `width` is in inches.

    >>> import torch
    >>> from ccal.evaluation import correlation_structure
    >>> structure = correlation_structure(torch.eye(6)[:, :2], torch.eye(6)[:, 1:3])
    >>> correlation_plot({"CCAL": structure}).axes[0].lines[0].get_ydata().shape
    (2,)
    """
    if not structures:
        raise InputError("structures is empty: pass at least one method's CorrelationStructure.")
    beside, rows = width >= 6, 0.19 * (len(structures) + 4)
    height = max(3.5, 0.4 + rows) if beside else 2.8 + rows
    handles: list[Artist] = []
    labels: list[str] = []
    levels = [structure.chance for structure in structures.values()]
    chances = {round(level, 4) for level in levels}
    dashed: dict[str, Any] = {"linestyle": _DASHED, "linewidth": 1.4}
    dotted: dict[str, Any] = {"linestyle": ":", "linewidth": 1.2}
    with style.chart(width, height, "Canonical correlation", x="dimension") as (figure, axes):
        from matplotlib.lines import Line2D

        for index, (method, structure) in enumerate(structures.items()):
            colour, marker = look(index)
            train = structure.train.numpy(force=True)
            dimension = np.arange(1, len(train) + 1)
            few = marker if len(train) <= 3 or len(structures) > len(SERIES) else ""
            marks: dict[str, Any] = {
                "marker": few,
                "markersize": 4,
                "markevery": max(1, len(train) // 8),
            }
            handles += axes.plot(dimension, train, color=colour, zorder=3, **marks)
            label = f"{plain(method, 30)}: {train.mean():.2f}"
            if structure.held_out is not None:
                held_out = structure.held_out.numpy(force=True)
                marks |= {"markerfacecolor": "none", **dashed}
                axes.plot(dimension, held_out, color=colour, **marks)
                label += f", held out {held_out.mean():.2f}"
            labels.append(label)
            if len(chances) > 1 or index == 0:
                shade = colour if 1 < len(chances) <= 4 else MUTED
                axes.axhline(structure.chance, color=shade, zorder=1, **dotted)
        largest = max(len(structure.train) for structure in structures.values())
        axes.set_xlim(0.5, largest + 0.5)
        axes.set_ylim(min(0.0, axes.get_ylim()[0]), 1.03)
        style.whole_ticks(axes)
        # Below the methods: which kind of line is which pairs.
        handles.append(Line2D([], [], color=MUTED))
        labels.append("training")
        if any(structure.held_out is not None for structure in structures.values()):
            handles.append(Line2D([], [], color=MUTED, **dashed))
            labels.append("held out")
        handles.append(Line2D([], [], color=MUTED, **dotted))
        low, high = f"{min(levels):.2f}", f"{max(levels):.2f}"
        labels.append(f"chance: {low}" if low == high else f"chance: {low} to {high}")
        place = "outside right upper" if beside else "outside lower left"
        title = {"title": "mean correlation", "alignment": "left", "title_fontsize": 8.5}
        label_legend(figure, handles, labels, loc=place, **title)
    return figure


def confusion_plot(report: ClassReport, *, width: float = WIDE) -> Figure:
    """The share of a class's items (row) that is nearest to each class (column), as colour.

    The right class is blue, any other orange, and a fuller colour is a larger share. More than 60
    classes are numbered instead of named. `width` is in inches.

    >>> import torch
    >>> from ccal.evaluation import evaluate_classes
    >>> labels = torch.tensor([0, 1, 2])
    >>> report = evaluate_classes(torch.eye(3), labels, torch.eye(3).roll(1, 0), labels, k=1)
    >>> len(confusion_plot(report).axes[0].collections[0].get_paths())
    3
    """
    count = len(report.names)
    named = count <= _NAMED
    limit = 26 if width >= 6 else 14
    margin = 0.075 * min(limit, max(map(len, report.names))) if named else 0.4
    side = min(width - margin, 1.2 + 0.24 * count)
    title = "Class, and what its items are taken for"
    with style.chart(width, side + margin + 0.4, title) as (figure, axes):
        _cells(axes, report)
        axes.set_xlim(-0.5, count - 0.5)
        axes.set_ylim(count - 0.5, -0.5)
        axes.set_aspect("equal")
        axes.grid(visible=False)
        if named:
            labels = [plain(name, limit) for name in report.names]
            size = min(8.5, 0.75 * 72 * side / max(count, 1))
            axes.set_xticks(range(count), labels, rotation=90, fontsize=size, color=INK)
            axes.set_yticks(range(count), labels, fontsize=size, color=INK)
    return figure


def _cells(axes: Axes, report: ClassReport) -> None:
    from matplotlib.collections import PatchCollection
    from matplotlib.colors import to_rgba
    from matplotlib.patches import Rectangle

    squares, faces = [], []
    for row, column in report.confusion.nonzero().tolist():
        squares.append(Rectangle((column - 0.47, row - 0.47), 0.94, 0.94))
        share = float(report.confusion[row, column]) / 100
        faces.append(to_rgba(SERIES[0 if row == column else 1], 0.12 + 0.88 * share))
    many = len(squares) > _NAMED**2
    axes.add_collection(PatchCollection(squares, facecolor=faces, linewidth=0, rasterized=many))
