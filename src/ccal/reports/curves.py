"""Loss and validation by epoch, read from the records of a run (its metrics.jsonl)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import isfinite, nan
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ccal.errors import InputError
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


_Floats = NDArray[np.float64]
Record = Mapping[str, Any]
_Stages = Mapping[str, Sequence[Record]]

_MRR = ("mrr_x_to_y", "mrr_y_to_x")
"""Validation MRR of both directions: a share from 0 to 1 in the records, in % in the plot."""


def training_curves(
    records: Sequence[Record],
    *,
    directions: tuple[str, str] = ("x → y", "y → x"),
    width: float = WIDE,
) -> Figure:
    """Loss with the drops of the learning rate, and validation MRR with the best epoch.

    A run that chose by classes has their AP@50 (`score`, in %) in place of the MRR.

    `records` are the lines of metrics.jsonl, one an epoch: `stage`, `epoch`, `loss`,
    `learning_rate`, `mrr_x_to_y` and `mrr_y_to_x` (shares from 0 to 1). A value that is missing,
    None or not finite leaves a gap. Of two lines of one epoch, as after a resumed run, the last
    counts; lines without an epoch are left out. Stages share the axis, each from its own first
    epoch. `width` is in inches; below 6 the panels stand one above the other.

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
        by_class = _scores(stages) != _MRR
        title = "Validation AP@k of classes (%)" if by_class else "Validation MRR (%)"
        panel(judged, title, x="epoch")
        _draw_losses(losses, stages)
        _draw_scores(judged, stages, ("all classes",) if by_class else directions)
        for axes in (losses, judged):
            _whole_epochs(axes, stages)
    return figure


def by_stage(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Records by stage, in the order of their epochs.

    Of two records of one epoch, as after a resumed run, the last counts; a record without an epoch
    is left out.
    """
    found: dict[str, dict[int, Record]] = {}
    for record in records:
        epoch = record.get("epoch")
        if epoch is None:
            continue
        if isinstance(epoch, bool) or not isinstance(epoch, int | np.integer):
            raise InputError(f"epoch must be a whole number, got {epoch!r} in {dict(record)!r}.")
        found.setdefault(str(record.get("stage", "train")), {})[int(epoch)] = record
    return {stage: [epochs[epoch] for epoch in sorted(epochs)] for stage, epochs in found.items()}


def _scores(stages: _Stages) -> tuple[str, ...]:
    """The fields that chose the best epoch: AP@k of classes, if it was recorded, else both MRR."""
    scored = any(np.isfinite(_column(records, "score")).any() for records in stages.values())
    return ("score",) if scored else _MRR


def _numbers(records: Sequence[Record]) -> _Floats:
    """The number of each epoch."""
    return np.array([float(record["epoch"]) for record in records])


def _column(records: Sequence[Record], name: str) -> _Floats:
    """The values of one field, MRR in %; NaN where it is missing, None or not finite.

    >>> _column([{"epoch": 0, "loss": None}, {"epoch": 1, "loss": 2.5, "mrr_x_to_y": 0.25}], "loss")
    array([nan, 2.5])
    """
    values = np.array([_number(record.get(name), name) for record in records])
    if name not in _MRR:
        return values
    wrong = values[(values < 0) | (values > 1)]
    if len(wrong):
        raise InputError(f"{name} must be a share between 0 and 1, got {wrong[0]:g}.")
    return 100 * values


def best_epoch(stages: _Stages) -> tuple[str, int] | None:
    """Stage and epoch of the highest validation score or MRR, both directions averaged, or None.

    Of equal epochs the last one counts, as in training.

    >>> best_epoch(by_stage([{"stage": "train", "epoch": e, "mrr_x_to_y": m, "mrr_y_to_x": m}
    ...                      for e, m in enumerate([0.1, 0.3, float("nan"), 0.2])]))
    ('train', 1)
    """
    best: tuple[int, float] = (0, 0.0)
    place = None
    for stage, records in stages.items():
        pairs = np.stack([_column(records, name) for name in _scores(stages)], axis=1)
        for record, pair in zip(records, pairs, strict=True):
            known = pair[np.isfinite(pair)]
            # One direction alone does not compare with the mean of two.
            if len(known) and (score := (len(known), float(known.mean()))) >= best:
                best, place = score, (stage, int(record["epoch"]))
    return place


def _number(value: Any, name: str) -> float:
    if value is None:
        return nan
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be a number or null, got {value!r}.") from error
    return number if isfinite(number) else nan


def _line(axes: Axes, x: _Floats, y: _Floats, **style: Any) -> Line2D:
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


def _draw_losses(axes: Axes, stages: _Stages) -> None:
    lines = []
    for index, records in enumerate(stages.values()):
        colour = (INK, *SERIES[3:])[index % (1 + len(SERIES[3:]))]
        x, y = _numbers(records), _column(records, "loss")
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
    if not any(np.isfinite(_column(records, "loss")).any() for records in stages.values()):
        _say(axes, "no loss was recorded")


def _draw_drops(axes: Axes, stages: _Stages) -> None:
    """A vertical line at each epoch where the learning rate was divided, not where it glides."""
    drops: dict[float, float] = {}
    for records in stages.values():
        epochs, rates = _numbers(records), _column(records, "learning_rate")
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


def _draw_scores(axes: Axes, stages: _Stages, directions: tuple[str, ...]) -> None:
    lines: list[Line2D] = []
    labels: list[str] = []
    names = _scores(stages)
    for index, (stage, records) in enumerate(stages.items()):
        for which, (name, direction) in enumerate(zip(names, directions, strict=True)):
            y = _column(records, name)
            if not np.isfinite(y).any():
                continue
            colour, marker = look(which)
            lines.append(
                _line(
                    axes,
                    _numbers(records),
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
    place = _numbers(records).tolist().index(epoch)
    axes.axvline(epoch, color=MUTED, linewidth=0.9, zorder=1)
    for which, name in enumerate(names):
        colour, marker = look(which)
        axes.plot([epoch], [_column(records, name)[place]], marker, color=colour, markersize=5)
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


def _whole_epochs(axes: Axes, stages: _Stages) -> None:
    """Ticks at whole epochs, and one epoch in the middle of its axis."""
    epochs = np.concatenate([_numbers(records) for records in stages.values()])
    low, high = float(epochs.min()), float(epochs.max())
    margin = max(0.5, 0.03 * (high - low))
    axes.set_xlim(low - margin, high + margin)
    whole_ticks(axes)
