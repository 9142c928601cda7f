"""Confusions between classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ccal.evaluation import ClassReport
from ccal.optional import require
from ccal.reports.style import INK, SERIES, WIDE, drawing, new_figure, panel, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_NAMED = 60


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
    with drawing():
        margin = 0.075 * min(limit, max(map(len, report.names))) if named else 0.4
        side = min(width - margin, 1.2 + 0.24 * count)
        figure = new_figure(width, side + margin + 0.4)
        axes = figure.subplots()
        panel(axes, "Class, and what its items are taken for")
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
    patches = require("matplotlib.patches", extra="plots", purpose="Plotting")
    collections = require("matplotlib.collections", extra="plots", purpose="Plotting")
    colours = require("matplotlib.colors", extra="plots", purpose="Plotting")
    squares, faces = [], []
    for row, column in report.confusion.nonzero().tolist():
        squares.append(patches.Rectangle((column - 0.47, row - 0.47), 0.94, 0.94))
        share = float(report.confusion[row, column]) / 100
        faces.append(colours.to_rgba(SERIES[0 if row == column else 1], 0.12 + 0.88 * share))
    many = len(squares) > _NAMED**2
    axes.add_collection(
        collections.PatchCollection(squares, facecolor=faces, linewidth=0, rasterized=many)
    )
