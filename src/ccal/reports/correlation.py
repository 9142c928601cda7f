"""The correlation structure of embeddings: the figure of the paper's appendix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ccal.errors import InputError
from ccal.evaluation import CorrelationStructure
from ccal.optional import require
from ccal.reports.style import (
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
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure


def correlation_plot(
    structures: Mapping[str, CorrelationStructure], *, width: float = WIDE
) -> Figure:
    """Canonical correlation against dimension, one colour a method; means in the legend.

    Solid: on the training pairs; dashed: the same directions on held-out pairs; dotted: the mean
    that independent views of that size would show in training. `width` is in inches.

    >>> import torch
    >>> from ccal.evaluation import correlation_structure
    >>> structure = correlation_structure(torch.eye(6)[:, :2], torch.eye(6)[:, 1:3])
    >>> correlation_plot({"CCAL": structure}).axes[0].lines[0].get_ydata().shape
    (2,)
    """
    if not structures:
        raise InputError("structures is empty: pass at least one method's CorrelationStructure.")
    lines: list[Artist] = []
    labels: list[str] = []
    with drawing():
        beside = width >= 6
        rows = 0.19 * (len(structures) + 4)
        figure = new_figure(width, max(3.5, 0.4 + rows) if beside else 2.8 + rows)
        axes = figure.subplots()
        panel(axes, "Canonical correlation", x="dimension")
        chances = {round(structure.chance, 4) for structure in structures.values()}
        for index, (method, structure) in enumerate(structures.items()):
            colour, marker = look(index)
            train = structure.train.numpy(force=True)
            dimension = np.arange(1, len(train) + 1)
            few = marker if len(train) <= 3 or len(structures) > len(SERIES) else ""
            every = max(1, len(train) // 8)
            (line,) = axes.plot(
                dimension, train, color=colour, marker=few, markersize=4, markevery=every, zorder=3
            )
            lines.append(line)
            label = f"{plain(method, 30)}: {train.mean():.2f}"
            if structure.held_out is not None:
                held_out = structure.held_out.numpy(force=True)
                axes.plot(
                    dimension,
                    held_out,
                    color=colour,
                    linestyle=(0, (4, 2)),
                    linewidth=1.4,
                    marker=few,
                    markersize=4,
                    markevery=every,
                    markerfacecolor="none",
                )
                label += f", held out {held_out.mean():.2f}"
            labels.append(label)
            if len(chances) > 1 or index == 0:
                axes.axhline(
                    structure.chance,
                    color=colour if 1 < len(chances) <= 4 else MUTED,
                    linestyle=":",
                    linewidth=1.2,
                    zorder=1,
                )
        largest = max(len(structure.train) for structure in structures.values())
        axes.set_xlim(0.5, largest + 0.5)
        axes.set_ylim(min(0.0, axes.get_ylim()[0]), 1.03)
        whole_ticks(axes)
        _legends(figure, lines, labels, structures, beside)
    return figure


def _legends(
    figure: Figure,
    lines: list[Artist],
    labels: list[str],
    structures: Mapping[str, CorrelationStructure],
    beside: bool,
) -> None:
    """Which colour is which method, and which kind of line is which pairs."""
    line = require("matplotlib.lines", extra="plots", purpose="Plotting").Line2D
    chances = [structure.chance for structure in structures.values()]
    low, high = f"{min(chances):.2f}", f"{max(chances):.2f}"
    handles = [*lines, line([], [], color=MUTED)]
    texts = [*labels, "training"]
    if any(structure.held_out is not None for structure in structures.values()):
        handles.append(line([], [], color=MUTED, linestyle=(0, (4, 2)), linewidth=1.4))
        texts.append("held out")
    handles.append(line([], [], color=MUTED, linestyle=":", linewidth=1.2))
    texts.append(f"chance: {low}" if low == high else f"chance: {low} to {high}")
    label_legend(
        figure,
        handles,
        texts,
        loc="outside right upper" if beside else "outside lower left",
        title="mean correlation",
        alignment="left",
        title_fontsize=8.5,
    )
