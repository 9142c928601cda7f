"""Loss and validation by epoch, read from the records of a run (its metrics.jsonl)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import isfinite, nan
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ccal.errors import InputError
from ccal.reports import style
from ccal.reports.style import INK, MUTED, SERIES, WIDE, label_legend, look, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D


Record = Mapping[str, Any]
_Floats = NDArray[np.float64]
_Stages = Mapping[str, Mapping[str, _Floats]]

_MRR = ("mrr_x_to_y", "mrr_y_to_x")
"""Validation MRR of both directions."""
_SHARES = ("score", *_MRR)
"""Fields that are shares from 0 to 1 in the records, and in % in the plot."""
_FIELDS = ("epoch", "loss", "learning_rate", *_SHARES)


def training_curves(
    records: Sequence[Record],
    *,
    directions: tuple[str, str] = ("x → y", "y → x"),
    width: float = WIDE,
) -> Figure:
    """Loss with the drops of the learning rate, and validation MRR with the best epoch.

    A run that chose by classes has their AP@50 (`score`) in place of the MRR.

    `records` are the lines of metrics.jsonl, one an epoch: `stage`, `epoch`, `loss`,
    `learning_rate`, `mrr_x_to_y`, `mrr_y_to_x` and `score` (shares from 0 to 1). A value that is
    missing, None or not finite leaves a gap. Of two lines of one epoch, as after a resumed run, the
    last counts; lines without an epoch are left out. Stages share the axis, each from its own first
    epoch. `width` is in inches; below 6 the panels stand one above the other.

    >>> figure = training_curves([{"stage": "train", "epoch": 1, "loss": 2.0, "mrr_x_to_y": 0.4}])
    >>> [axes.get_title("left") for axes in figure.axes]
    ['Training loss', 'Validation MRR (%)']
    """
    stages = by_stage(records)
    with style.drawing():
        if not stages:
            figure = style.new_figure(width, 1.2)
            figure.text(0.5, 0.5, "No epochs were recorded.", ha="center", va="center", color=MUTED)
            return figure
        beside = width >= 6
        figure = style.new_figure(width, 3.1 if beside else 5.4)
        losses, judged = figure.subplots(1, 2) if beside else figure.subplots(2, 1)
        style.panel(losses, "Training loss", x="epoch")
        by_class = _scores(stages) != _MRR
        title = "Validation AP@k of classes (%)" if by_class else "Validation MRR (%)"
        style.panel(judged, title, x="epoch")
        _draw_losses(losses, stages)
        _draw_scores(judged, stages, ("all classes",) if by_class else directions)
        epochs = np.concatenate([stage["epoch"] for stage in stages.values()])
        low, high = float(epochs.min()), float(epochs.max())
        # A single epoch stands in the middle of its axis.
        margin = max(0.5, 0.03 * (high - low))
        for axes in (losses, judged):
            axes.set_xlim(low - margin, high + margin)
            style.whole_ticks(axes)
    return figure


def validation_curves(
    runs_by_method: Mapping[str, Sequence[Sequence[Record]]], *, width: float = WIDE
) -> Figure:
    """Validation score by epoch, one colour a method and one line a seed.

    The score is AP@50 where classes choose, else the mean MRR of both directions, in %.

    >>> record = {"epoch": 1, "mrr_x_to_y": 0.4, "mrr_y_to_x": 0.2}
    >>> validation_curves({"CCAL": [[record]]}).axes[0].lines[0].get_ydata()
    array([30.])
    """
    handles, labels = [], []
    with style.chart(width, 3.4, "Validation score (%)", x="epoch") as (figure, axes):
        for index, (method, runs) in enumerate(runs_by_method.items()):
            colour, _ = look(index)
            # Colours come again after some methods; dashes tell those apart.
            dashes = ("-", "--", ":")[index // len(style.SERIES) % 3]
            shown: dict[str, Any] = {"color": colour, "linestyle": dashes, "linewidth": 1.4}
            for records in runs:
                stages = by_stage(records)
                stage = next(iter(stages.values()))
                scores = np.nanmean([stage[name] for name in _scores(stages)], axis=0)
                lines = _line(axes, stage["epoch"], scores, **shown)
            handles.append(lines)
            labels.append(plain(method, 40))
        style.whole_ticks(axes)
        place = "outside right upper" if width >= 6 else "outside lower left"
        label_legend(figure, handles, labels, loc=place)
    return figure


def by_stage(records: Sequence[Record]) -> dict[str, dict[str, _Floats]]:
    """The fields of each stage as columns, in the order of the epochs: shares in %, NaN for a gap.

    Of two records of one epoch, as after a resumed run, the last counts; a record without an epoch
    is left out.

    >>> by_stage([{"epoch": 1, "loss": 2.5, "mrr_x_to_y": 0.25}, {"epoch": 0}])["train"]["loss"]
    array([nan, 2.5])
    """
    found: dict[str, dict[int, Record]] = {}
    for record in records:
        epoch = record.get("epoch")
        if epoch is None:
            continue
        if isinstance(epoch, bool) or not isinstance(epoch, int | np.integer):
            raise InputError(f"epoch must be a whole number, got {epoch!r} in {dict(record)!r}.")
        found.setdefault(str(record.get("stage", "train")), {})[int(epoch)] = record
    return {
        stage: {name: _column([epochs[e] for e in sorted(epochs)], name) for name in _FIELDS}
        for stage, epochs in found.items()
    }


def _column(records: Sequence[Record], name: str) -> _Floats:
    values = np.array([_number(record.get(name), name) for record in records])
    if name not in _SHARES:
        return values
    wrong = values[(values < 0) | (values > 1)]
    if len(wrong):
        raise InputError(f"{name} must be a share between 0 and 1, got {wrong[0]:g}.")
    return 100 * values


def _number(value: Any, name: str) -> float:
    if value is None:
        return nan
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be a number or null, got {value!r}.") from error
    return number if isfinite(number) else nan


def _scores(stages: _Stages) -> tuple[str, ...]:
    """The fields that chose the best epoch: AP@k of classes, if it was recorded, else both MRR."""
    scored = any(np.isfinite(stage["score"]).any() for stage in stages.values())
    return ("score",) if scored else _MRR


def best_epoch(stages: _Stages) -> tuple[str, int] | None:
    """Stage and epoch of the highest validation score or MRR, both directions averaged, or None.

    Of equal epochs the last one counts, as in training.

    >>> best_epoch(by_stage([{"stage": "train", "epoch": e, "mrr_x_to_y": m, "mrr_y_to_x": m}
    ...                      for e, m in enumerate([0.1, 0.3, float("nan"), 0.2])]))
    ('train', 1)
    """
    best, place = (0, 0.0), None
    for name, stage in stages.items():
        pairs = np.stack([stage[field] for field in _scores(stages)], axis=1)
        for epoch, pair in zip(stage["epoch"], pairs, strict=True):
            known = pair[np.isfinite(pair)]
            # One direction alone does not compare with the mean of two.
            if len(known) and (score := (len(known), float(known.mean()))) >= best:
                best, place = score, (name, int(epoch))
    return place


def _line(axes: Axes, x: _Floats, y: _Floats, **look: Any) -> Line2D:
    """A line with gaps; a value that stands alone has no line, so it gets a marker."""
    seen = np.isfinite(y)
    before, after = np.r_[False, seen[:-1]], np.r_[seen[1:], False]
    alone = seen & ~before & ~after
    if alone.any():
        look = {"marker": "o", **look, "markevery": np.flatnonzero(alone).tolist()}
    else:
        look["marker"] = ""
    (line,) = axes.plot(x, y, markersize=4.5, solid_capstyle="round", **look)
    return line


def _draw_losses(axes: Axes, stages: _Stages) -> None:
    colours = (INK, *SERIES[3:])
    lines = []
    for index, stage in enumerate(stages.values()):
        shown = {"color": colours[index % len(colours)], "zorder": 3 - index / 100}
        lines.append(_line(axes, stage["epoch"], stage["loss"], **shown))
    _draw_drops(axes, stages)
    if len(lines) > 1:
        # In the row of the title: the curve and the drops need the room below.
        place: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1, 1.01)}
        place |= {"handlelength": 1.4, "columnspacing": 1, "borderaxespad": 0}
        names = [plain(name, 14) for name in stages]
        label_legend(axes, lines, names, ncols=len(lines), **place)
    if not any(np.isfinite(stage["loss"]).any() for stage in stages.values()):
        _say(axes, "no loss was recorded")


def _draw_drops(axes: Axes, stages: _Stages) -> None:
    """A vertical line at each epoch where the learning rate was divided, not where it glides."""
    drops: dict[float, float] = {}
    for stage in stages.values():
        rates = stage["learning_rate"]
        for before, after in pairwise(np.flatnonzero(rates > 0)):
            if rates[after] < 0.6 * rates[before]:
                drops.setdefault(float(stage["epoch"][after]), float(rates[after]))
    turned: dict[str, Any] = {"rotation": 90, "ha": "right", "va": "top", "fontsize": 7.5}
    for epoch, rate in drops.items():
        axes.axvline(epoch, color=MUTED, linewidth=0.9, linestyle=(0, (3, 2)), zorder=1)
        if len(drops) <= 4:
            _remark_at_top(axes, f"lr {_short(rate)}", epoch, (-2.5, -2), **turned)


def _short(rate: float) -> str:
    mantissa, exponent = f"{rate:.1e}".split("e")
    return f"{rate:g}" if rate >= 0.01 else f"{float(mantissa):g}e{int(exponent)}"


def _draw_scores(axes: Axes, stages: _Stages, directions: tuple[str, ...]) -> None:
    lines: list[Line2D] = []
    labels: list[str] = []
    fields = _scores(stages)
    for index, (name, stage) in enumerate(stages.items()):
        dashes = ("-", "--", ":")[min(index, 2)]
        for which, (field, direction) in enumerate(zip(fields, directions, strict=True)):
            x, y = stage["epoch"], stage[field]
            if np.isfinite(y).any():
                colour, marker = look(which)
                lines.append(_line(axes, x, y, color=colour, marker=marker, linestyle=dashes))
                several = f" ({plain(name, 16)})" if index else ""
                labels.append(plain(direction, 28) + several)
    best = best_epoch(stages)
    if best is None:
        _say(axes, "no validation was recorded")
        return
    name, epoch = best
    epochs = stages[name]["epoch"]
    axes.axvline(epoch, color=MUTED, linewidth=0.9, zorder=1)
    for which, field in enumerate(fields):
        colour, marker = look(which)
        y = stages[name][field][epochs == epoch]
        axes.plot([epoch], y, marker, color=colour, markersize=5)
    # The label lies on the side of the line that has more room.
    offset, side = ((4, 3), "left") if 2 * epoch <= epochs[0] + epochs[-1] else ((-4, 3), "right")
    place = {"ha": side, "va": "bottom", "annotation_clip": False}
    _remark_at_top(axes, f"best: epoch {epoch}", epoch, offset, **place)
    label_legend(axes, lines, labels, loc="best")


def _remark_at_top(
    axes: Axes, text: str, epoch: float, offset: tuple[float, float], **place: Any
) -> None:
    place |= {"xycoords": ("data", "axes fraction"), "color": MUTED}
    style.remark(axes, text, (epoch, 1), offset, **place)


def _say(axes: Axes, text: str) -> None:
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=MUTED)
    axes.set_yticks([])
