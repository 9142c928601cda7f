"""Figures as files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ccal.evaluation import ClassReport, CorrelationStructure, Report
from ccal.files import write_atomically
from ccal.reports.comparison import comparison_plot
from ccal.reports.confusion import confusion_plot
from ccal.reports.correlation import correlation_plot
from ccal.reports.curves import training_curves
from ccal.reports.epochs import Record
from ccal.reports.ranks import rank_plot
from ccal.reports.style import WIDE, arrow, render

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw", "save_plots"]

_KINDS: tuple[Literal["png", "svg"], ...] = ("png", "svg")


def save_plots(
    folder: str | os.PathLike[str],
    *,
    report: Report | None = None,
    records: Sequence[Record] = (),
    structures: Mapping[str, CorrelationStructure] | None = None,
    reports_by_method: Mapping[str, Sequence[Report]] | None = None,
    classes: ClassReport | None = None,
) -> list[Path]:
    """Write a plot of everything that is given to `folder`, as PNG (150 dpi) and as SVG.

    The files are `training`, `correlation`, `ranks`, `confusion` and `comparison`, each whole or
    not there. Returns their paths.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [path.name for path in save_plots(folder, records=[{"epoch": 1, "loss": 0.5}])]
    ['training.png', 'training.svg']
    """
    figures = draw(report, records, structures, reports_by_method, classes, width=WIDE)
    contents = {
        f"{name}.{kind}": render(figure, kind)
        for name, figure in figures.items()
        for kind in _KINDS
    }
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        write_atomically(place / name, content)
    return [place / name for name in contents]


def draw(
    report: Report | None,
    records: Sequence[Record],
    structures: Mapping[str, CorrelationStructure] | None,
    reports_by_method: Mapping[str, Sequence[Report]] | None,
    classes: ClassReport | None = None,
    *,
    width: float,
) -> dict[str, Figure]:
    """A figure of everything that is there, `width` inches wide, by name."""
    figures = {}
    if records and report is not None:
        directions = arrow(report.x_to_y.name), arrow(report.y_to_x.name)
        figures["training"] = training_curves(records, directions=directions, width=width)
    elif records:
        figures["training"] = training_curves(records, width=width)
    if structures:
        figures["correlation"] = correlation_plot(structures, width=width)
    if report is not None:
        figures["ranks"] = rank_plot(report, width=width)
    if classes is not None:
        figures["confusion"] = confusion_plot(classes, width=width)
    if reports_by_method:
        figures["comparison"] = comparison_plot(reports_by_method, width=width)
    return figures
