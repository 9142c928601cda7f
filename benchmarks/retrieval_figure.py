"""Queries with what they found, as one figure: pictures where there are any, names elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np

from ccal.optional import require
from ccal.reports import Example, Hit
from ccal.reports.style import INK, MUTED, PAPER, SERIES, WIDE, drawing, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RIGHT, WRONG = SERIES[2], SERIES[1]


def retrieval_figure(
    examples: Sequence[Example], *, name: Callable[[str], str] = str, width: float = WIDE
) -> Figure:
    """A row for each example: the query, how well it does, and its hits from left to right.

    Right hits have a green frame, others an orange one and a dashed line, so that no colour has to
    be seen. `name` shortens names of classes.
    """
    columns = max(len(example.hits) for example in examples)
    with drawing():
        figure = new_figure(width, 0.35 + 0.95 * len(examples))
        figure.get_layout_engine().set(w_pad=0.02, h_pad=0.02, wspace=0, hspace=0)  # type: ignore[union-attr, call-arg]
        ratios = [1.7] + [1.0] * columns
        grid = figure.subplots(len(examples), columns + 1, width_ratios=ratios, squeeze=False)
        for axes in grid.flat:
            axes.set_axis_off()
        for row, example in zip(grid, examples, strict=True):
            query = fill(name(str(example.query)), 20)
            row[0].text(0, 0.62, query, va="center", fontsize=8.5, color=INK, weight="bold")
            row[0].text(0, 0.16, example.note, va="center", fontsize=7.5, color=MUTED)
            for axes, hit in zip(row[1:], example.hits, strict=False):
                _tile(axes, hit, name)
    return figure


def _tile(axes: Axes, hit: Hit, name: Callable[[str], str]) -> None:
    patches = require("matplotlib.patches", extra="plots", purpose="Plotting")
    colour = RIGHT if hit.right else WRONG
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    if isinstance(hit.item, Path):
        pillow = require("PIL.Image", extra="images", purpose="Showing pictures")
        with pillow.open(hit.item) as opened:
            picture = opened.convert("RGB")
        picture.thumbnail((96, 96))
        axes.imshow(np.asarray(picture), extent=(0.02, 0.98, 0.02, 0.98), interpolation="nearest")
        axes.set_aspect("equal")
    else:
        shown = fill(name(hit.item), 11)
        axes.text(0.5, 0.5, shown, ha="center", va="center", fontsize=7, color=INK)
    frame = patches.FancyBboxPatch(
        (0.02, 0.02),
        0.96,
        0.96,
        boxstyle="square,pad=0",
        facecolor="none" if isinstance(hit.item, Path) else PAPER,
        edgecolor=colour,
        linewidth=1.8,
        linestyle="-" if hit.right else (0, (2, 1.5)),
        zorder=3 if isinstance(hit.item, Path) else 0,
    )
    axes.add_patch(frame)
