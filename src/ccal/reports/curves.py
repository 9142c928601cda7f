"""How the loss fell and the validation rose, epoch by epoch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ccal.reports.epochs import (
    SCORES,
    Floats,
    Record,
    Stages,
    best_epoch,
    by_stage,
    column,
    numbers,
    scores,
)
from ccal.reports.style import (
    INK,
    MUTED,
    SERIES,
    WIDE,
    drawing,
    label_legend,
    look,
    new_figure,
    panel,
    plain,
    whole_ticks,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

__all__ = ["training_curves"]


def training_curves(
    records: Sequence[Record],
    *,
    directions: tuple[str, str] = ("x → y", "y → x"),
    width: float = WIDE,
) -> Figure:
    """Loss with the drops of the learning rate, and validation MRR with the best epoch.

    A run that chose by classes has their AP@50 (`score`, in %) in place of the MRR.

    `records` are the lines of metrics.jsonl, one an epoch: `stage`, `epoch`, `loss`,
    `learning_rate`, `mrr_x_to_y` and `mrr_y_to_x` (shares from 0 to 1). What is missing, None or
    not finite leaves a gap. An epoch that is there twice, as after a resumed run, counts as it was
    the last time; lines without an epoch are left out. Stages share the axis, each from its own
    first epoch. `width` is in inches; below 6 the panels stand one above the other.

    >>> figure = training_curves([{"stage": "train", "epoch": 1, "loss": 2.0, "mrr_x_to_y": 0.4}])
    >>> [axes.get_title("left") for axes in figure.axes]
    ['Training loss', 'Validation MRR (%)']
    """
    stages = by_stage(records)
    with drawing():
        if not stages:
            figure = new_figure(width, 1.2)
            figure.text(0.5, 0.5, "No epochs were recorded.", ha="center", va="center", color=MUTED)
            return figure
        beside = width >= 6
        figure = new_figure(width, 3.1 if beside else 5.4)
        losses, judged = figure.subplots(1, 2) if beside else figure.subplots(2, 1)
        panel(losses, "Training loss", x="epoch")
        by_class = scores(stages) != SCORES
        title = "Validation AP@k of classes (%)" if by_class else "Validation MRR (%)"
        panel(judged, title, x="epoch")
        _draw_losses(losses, stages)
        _draw_scores(judged, stages, ("all classes",) if by_class else directions)
        for axes in (losses, judged):
            _whole_epochs(axes, stages)
    return figure


def _line(axes: Axes, x: Floats, y: Floats, **style: Any) -> Line2D:
    """A line with gaps; a value that stands alone has no line, so it gets a marker."""
    seen = np.isfinite(y)
    before, after = np.r_[False, seen[:-1]], np.r_[seen[1:], False]
    alone = seen & ~before & ~after
    if alone.any():
        style.setdefault("marker", "o")
        style["markevery"] = np.flatnonzero(alone).tolist()
    else:
        style["marker"] = ""
    (line,) = axes.plot(x, y, markersize=4.5, solid_capstyle="round", **style)
    return line


def _draw_losses(axes: Axes, stages: Stages) -> None:
    lines = []
    for index, records in enumerate(stages.values()):
        colour = (INK, *SERIES[3:])[index % (1 + len(SERIES[3:]))]
        x, y = numbers(records), column(records, "loss")
        lines.append(_line(axes, x, y, color=colour, zorder=3 - index / 100))
    _draw_drops(axes, stages)
    if len(lines) > 1:
        # In the row of the title: the curve and the drops need the room below.
        label_legend(
            axes,
            lines,
            [plain(stage, 14) for stage in stages],
            loc="lower right",
            bbox_to_anchor=(1, 1.01),
            ncols=len(lines),
            handlelength=1.4,
            columnspacing=1,
            borderaxespad=0,
        )
    if not any(np.isfinite(column(records, "loss")).any() for records in stages.values()):
        _say(axes, "no loss was recorded")


def _draw_drops(axes: Axes, stages: Stages) -> None:
    """Where the learning rate is divided; a rate that glides down has no such places."""
    drops: dict[float, float] = {}
    for records in stages.values():
        epochs, rates = numbers(records), column(records, "learning_rate")
        known = np.flatnonzero(np.isfinite(rates) & (rates > 0))
        for before, after in pairwise(known):
            if rates[after] < 0.6 * rates[before]:
                drops.setdefault(float(epochs[after]), float(rates[after]))
    for epoch, rate in drops.items():
        axes.axvline(epoch, color=MUTED, linewidth=0.9, linestyle=(0, (3, 2)), zorder=1)
        if len(drops) > 4:
            continue
        axes.annotate(
            f"lr {_short(rate)}",
            (epoch, 1),
            xycoords=("data", "axes fraction"),
            xytext=(-2.5, -2),
            textcoords="offset points",
            rotation=90,
            ha="right",
            va="top",
            fontsize=7.5,
            color=MUTED,
        )


def _short(rate: float) -> str:
    mantissa, exponent = f"{rate:.1e}".split("e")
    return f"{rate:g}" if rate >= 0.01 else f"{float(mantissa):g}e{int(exponent)}"


def _draw_scores(axes: Axes, stages: Stages, directions: tuple[str, ...]) -> None:
    lines: list[Line2D] = []
    labels: list[str] = []
    names = scores(stages)
    for index, (stage, records) in enumerate(stages.items()):
        for which, (name, direction) in enumerate(zip(names, directions, strict=True)):
            y = column(records, name)
            if not np.isfinite(y).any():
                continue
            colour, marker = look(which)
            lines.append(
                _line(
                    axes,
                    numbers(records),
                    y,
                    color=colour,
                    marker=marker,
                    linestyle=("-", "--", ":")[min(index, 2)],
                )
            )
            several = f" ({plain(stage, 16)})" if index else ""
            labels.append(plain(direction, 28) + several)
    best = best_epoch(stages)
    if best is None:
        _say(axes, "no validation was recorded")
        return
    _mark_best(axes, stages[best[0]], best[1], names)
    label_legend(axes, lines, labels, loc="best")


def _mark_best(axes: Axes, records: Sequence[Record], epoch: int, names: Sequence[str]) -> None:
    place = numbers(records).tolist().index(epoch)
    axes.axvline(epoch, color=MUTED, linewidth=0.9, zorder=1)
    for which, name in enumerate(names):
        colour, marker = look(which)
        axes.plot([epoch], [column(records, name)[place]], marker, color=colour, markersize=5)
    # The label lies on the side of the line that has more room.
    first, last = records[0]["epoch"], records[-1]["epoch"]
    right = 2 * epoch <= first + last
    axes.annotate(
        f"best: epoch {epoch}",
        (epoch, 1),
        xycoords=("data", "axes fraction"),
        xytext=(4 if right else -4, 3),
        textcoords="offset points",
        ha="left" if right else "right",
        va="bottom",
        fontsize=8,
        color=MUTED,
        annotation_clip=False,
    )


def _say(axes: Axes, text: str) -> None:
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=MUTED)
    axes.set_yticks([])


def _whole_epochs(axes: Axes, stages: Stages) -> None:
    """Ticks at whole epochs, and one epoch in the middle of its axis."""
    epochs = np.concatenate([numbers(records) for records in stages.values()])
    low, high = float(epochs.min()), float(epochs.max())
    margin = max(0.5, 0.03 * (high - low))
    axes.set_xlim(low - margin, high + margin)
    whole_ticks(axes)
