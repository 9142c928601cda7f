"""MRR of several methods, with seeds and intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ccal.errors import InputError
from ccal.evaluation import Direction, Report
from ccal.reports.style import (
    INK,
    PAPER,
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
    methods = list(reports_by_method)
    handles: list[Artist] = []
    with drawing():
        figure = new_figure(width, 1.5 + 0.52 * len(methods))
        axes = figure.subplots()
        panel(axes, "MRR (%)", grid="x")
        for row, method in enumerate(methods):
            reports = reports_by_method[method]
            for which in (0, 1):
                seeds = [(r.x_to_y, r.y_to_x)[which] for r in reports]
                handles.append(_draw(axes, row + (-0.17, 0.17)[which], which, seeds))
        axes.set_yticks(
            range(len(methods)), [plain(m, 30 if width >= 6 else 19) for m in methods], color=INK
        )
        axes.set_ylim(len(methods) - 0.4, -0.6)
        low, high = axes.get_xlim()
        # Room for the numbers at the right ends of the whiskers.
        axes.set_xlim(max(0.0, low), high + (0.08 if width >= 6 else 0.16) * (high - max(0.0, low)))
        axes.spines["left"].set_visible(False)
        first = reports_by_method[methods[0]][0]
        label_legend(
            figure,
            handles[:2],
            [arrow(d.name, 24) for d in (first.x_to_y, first.y_to_x)],
            loc="outside lower left",
            ncols=2,
        )
    return figure


def check_methods(reports_by_method: Mapping[str, Sequence[Report]]) -> None:
    """Refuse an empty comparison, and methods without a report."""
    if not reports_by_method:
        raise InputError("reports_by_method is empty: pass at least one method's reports.")
    empty = [method for method, reports in reports_by_method.items() if not reports]
    if empty:
        raise InputError(f"Every method needs at least one Report, but {empty} have none.")


def _draw(axes: Axes, height: float, which: int, seeds: Sequence[Direction]) -> Artist:
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
        axes.plot(
            values,
            [height + 0.1] * len(values),
            linestyle="",
            marker="o",
            markersize=2.6,
            markeredgewidth=0,
            color=colour,
            alpha=0.75,
        )
    (point,) = axes.plot(
        [mean],
        [height],
        linestyle="",
        marker=marker,
        markersize=6.5,
        color=colour,
        markeredgecolor=PAPER,
        zorder=4,
    )
    axes.annotate(
        f"{mean:.1f}",
        (end, height),
        xytext=(5, 0),
        textcoords="offset points",
        va="center",
        fontsize=8,
        color=colour,
    )
    return point
