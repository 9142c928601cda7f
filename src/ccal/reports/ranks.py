"""The share of queries whose counterpart is among the first k."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ccal.errors import InputError
from ccal.evaluation import Direction, Report
from ccal.reports.style import (
    INK,
    MUTED,
    PAPER,
    SERIES,
    WIDE,
    arrow,
    drawing,
    label_legend,
    look,
    new_figure,
    panel,
    plain,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_CUTS = (1, 5, 10)


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
    handles: list[Artist] = []
    labels: list[str] = []
    with drawing():
        alone, beside = len(several) == 1, width >= 6
        rows = 0.19 * (2 * len(several) + 1)
        height = 3.3 if alone else 2.8 + rows
        figure = new_figure(width, max(3.5, 0.4 + rows) if beside else height)
        axes = figure.subplots()
        panel(axes, "Counterpart among the first k (%)", x="k")
        for index, (name, one) in enumerate(several.items()):
            for which, direction in enumerate((one.x_to_y, one.y_to_x)):
                colour, marker = look(which if alone else index)
                k, share = cumulative(direction)
                (line,) = axes.plot(
                    k,
                    share,
                    color=colour,
                    linestyle="-" if alone or which == 0 else (0, (4, 2)),
                    marker=marker,
                    markersize=5.5,
                    markeredgecolor=PAPER,
                    markevery=np.flatnonzero(np.isin(k, _CUTS)).tolist(),
                    zorder=3,
                )
                handles.append(line)
                title = arrow(direction.name, 28)
                labels.append(title if not name else f"{plain(name, 20)}, {title}")
        _chance(axes, several, handles, labels)
        if alone:
            _recalls(axes, next(iter(several.values())))
        _axes(axes, several)
        place = "best" if alone else "outside right upper" if beside else "outside lower left"
        label_legend(axes if alone else figure, handles, labels, loc=place)
    return figure


def cumulative(direction: Direction) -> tuple[Integers, Floats]:
    """Some k from 1 to the number of candidates, and the share of ranks up to each, in %.

    Every k up to 10, then about 200 more at equal steps of the logarithm, so that a plot of
    millions of ranks is as small as that of a hundred.
    """
    last = max(direction.candidates, int(direction.ranks.max()))
    steps = np.geomspace(1, last, 200).round().astype(np.int64)
    k = np.unique(np.r_[np.arange(1, min(10, last) + 1), steps, last])
    ranks = np.sort(direction.ranks.numpy(force=True))
    return k, 100.0 * np.searchsorted(ranks, k, side="right") / len(ranks)


def _chance(
    axes: Axes, several: Mapping[str, Report], handles: list[Artist], labels: list[str]
) -> None:
    """The share that guessing reaches, where every query has one counterpart."""
    sizes = {d.candidates for r in several.values() for d in (r.x_to_y, r.y_to_x)}
    if len(sizes) > 1:
        # Several counterparts a query, or test sets of several sizes: no one line is right.
        return
    (last,) = sizes
    k = np.unique(np.geomspace(1, last, 100).round())
    (line,) = axes.plot(k, 100 * k / last, color=MUTED, linestyle=":", linewidth=1.2, zorder=1)
    handles.append(line)
    labels.append("guessing")


def _recalls(axes: Axes, report: Report) -> None:
    """R@k in whole %, the higher direction above its marker and the lower one below."""
    pair = report.x_to_y, report.y_to_x
    for k in _CUTS:
        if k > min(direction.candidates for direction in pair):
            continue
        shares = [getattr(direction.measures, f"r{k}") for direction in pair]
        higher = int(shares[1] > shares[0])
        for which, share in enumerate(shares):
            above = which == higher
            axes.annotate(
                f"{share:.0f}",
                (k, share),
                xytext=(0, 5 if above else -5.5),
                textcoords="offset points",
                ha="center",
                va="bottom" if above else "top",
                fontsize=8,
                color=SERIES[which],
                zorder=4,
            )


def _axes(axes: Axes, several: Mapping[str, Report]) -> None:
    last = max(d.candidates for r in several.values() for d in (r.x_to_y, r.y_to_x))
    axes.set_xscale("log")
    axes.set_xlim(0.85, max(2, last) * 1.12)
    axes.set_ylim(-7, 104)
    axes.set_yticks(range(0, 101, 20))
    ticks = sorted({*_CUTS, *(10**e for e in range(2, 12))})
    ticks = [tick for tick in ticks if tick <= last]
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.minorticks_off()
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="x", labelcolor=INK)
