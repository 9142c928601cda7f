"""All that is known about a run as files: plots, and one HTML page with nothing beside it.

The pages come from `templates/`, where Jinja2 escapes every text. They hold no scripts, load
nothing, and follow the reader's light or dark setting.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ccal.columns import short
from ccal.evaluation import ClassReport, CorrelationStructure, Report
from ccal.evaluation.measures import LABELS, MEANINGS
from ccal.evaluation.protocol import TIES_MEAN
from ccal.files import write_atomically
from ccal.optional import require
from ccal.reports.curves import Record, best_epoch, by_stage, training_curves, validation_curves
from ccal.reports.examples import Example
from ccal.reports.inline import colour_variables, data_uri, inline_svg
from ccal.reports.plots import (
    check_methods,
    comparison_plot,
    confusion_plot,
    correlation_plot,
    rank_plot,
)
from ccal.reports.style import NARROW, WIDE, arrow, render

if TYPE_CHECKING:
    from jinja2 import Environment
    from matplotlib.figure import Figure


_KINDS: tuple[Literal["png", "svg"], ...] = ("png", "svg")
_CLASSES_SHOWN = 60

_ALTERNATIVES = {
    "training": "Line plots of the training loss and of the validation MRR or AP@50 by epoch.",
    "correlation": "Line plot of the canonical correlations by dimension; means in the table.",
    "ranks": "Line plot of the share of queries whose counterpart is among the first k, by k; "
    "R@1, R@5 and R@10 are in the summary.",
    "curves": "Line plot of the validation score of each method by epoch.",
    "confusion": "Matrix of classes and what their items are taken for; the table has the worst.",
    "comparison": "Dot plot of the MRR of each method in both directions; the table has the same.",
}
_CAPTIONS = {
    "training": "Vertical lines: the learning rate was divided (dashed); the best epoch (solid).",
    "correlation": "How strongly each pair of directions of the two views is correlated; 1 is the "
    "most there can be. Solid on training pairs, dashed on held-out pairs; dotted is what CCA "
    "finds in independent noise of the same size.",
    "ranks": "The further up and left, the better. Numbers at the markers are R@1, R@5 and R@10.",
    "curves": "One line a seed: AP@50 where classes choose, else the mean MRR of both directions.",
    "confusion": "Each row is a class and shows which class's queries its items are nearest to: "
    "blue is right, orange wrong, and the fuller the colour, the larger the share.",
    "comparison": "Large marker: mean over seeds; small dots below: the seeds; whisker: 95% "
    "interval over test queries, where it was computed.",
}


def write_report(
    path: str | os.PathLike[str],
    *,
    title: str,
    facts: Mapping[str, str],
    report: Report,
    records: Sequence[Record] = (),
    structures: Mapping[str, CorrelationStructure] | None = None,
    examples: Sequence[Example] = (),
    reports_by_method: Mapping[str, Sequence[Report]] | None = None,
    table: str | None = None,
    classes: ClassReport | None = None,
    warnings: Sequence[str] = (),
) -> Path:
    """Write what is known about a run to one HTML file, atomically; returns its path.

    `facts` are what a reader has to know (method, data, settings), `records` the lines of
    metrics.jsonl, `structures` correlation structures by method, `examples` those of
    `pick_examples` and `pick_classes`, `classes` how well classes find their items. Other methods
    are shown as a plot (`reports_by_method`, one report a seed) and as the HTML of a `table`, such
    as that of `ccal.runs.Comparison.to_html`. Sections without content are left out. All texts are
    shown as they are.

    >>> import tempfile, torch
    >>> from ccal.evaluation import evaluate_embeddings
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_report(Path(folder) / "report.html", title="Digits <1>",
    ...                         facts={"method": "ccal"},
    ...                         report=evaluate_embeddings(torch.eye(9), torch.eye(9), bootstrap=0))
    ...     "<h1>Digits &lt;1&gt;</h1>" in path.read_text(encoding="utf-8")
    True
    """
    if reports_by_method is not None:
        check_methods(reports_by_method)
    page = _page(
        "report.html",
        title=title,
        warnings=warnings,
        facts=facts,
        report=report,
        classes=classes,
        class_rows=[] if classes is None else _class_rows(classes),
        table=None if table is None else _safe(table),
        best=best_epoch(by_stage(records)),
        structures=structures,
        examples=_by_direction(examples),
        plots=_inline_plots(
            partial(_draw, report, records, structures, reports_by_method, classes)
        ),
    )
    return _write(path, page)


def write_comparison(
    path: str | os.PathLike[str],
    *,
    title: str,
    facts: Mapping[str, str],
    reports_by_method: Mapping[str, Sequence[Report]],
    table: str,
    structures: Mapping[str, CorrelationStructure] | None = None,
    warnings: Sequence[str] = (),
) -> Path:
    """Write methods side by side to one HTML file, atomically; returns its path.

    Each method has one `Report` a seed. The page holds the `table` as HTML, such as that of
    `ccal.runs.Comparison.to_html`, the plot of the methods, and the correlation structures.
    """
    check_methods(reports_by_method)
    page = _page(
        "comparison.html",
        title=title,
        warnings=warnings,
        facts=facts,
        table=_safe(table),
        structures=structures,
        plots=_inline_plots(partial(_draw, None, (), structures, reports_by_method, None)),
    )
    return _write(path, page)


def write_reproduction(
    folder: str | os.PathLike[str],
    *,
    title: str,
    differs: str,
    tables: Sequence[tuple[str, Sequence[Sequence[str]], str]],
    curves: Mapping[str, Sequence[Sequence[Record]]],
    structures: Mapping[str, CorrelationStructure],
    examples: Sequence[Example] = (),
) -> list[Path]:
    """Write a table of the paper to `folder`: table.html, correlation.svg and curves.svg.

    `differs` says first how settings and data differ from the paper's. `tables` have a title,
    cells below their head, and a caption. `curves` are the records of each seed by method.
    """

    def draw(width: float) -> dict[str, Figure]:
        figures = {"correlation": correlation_plot(structures, width=width)}
        if curves:
            figures["curves"] = validation_curves(curves, width=width)
        return figures

    page = _page(
        "reproduction.html",
        title=title,
        warnings=[differs],
        tables=tables,
        structures=structures,
        examples=_by_direction(examples),
        plots=_inline_plots(draw),
    )
    paths = [_write(Path(folder) / "table.html", page)]
    for name, figure in draw(WIDE).items():
        paths.append(_write(Path(folder) / f"{name}.svg", render(figure, "svg")))
    return paths


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

    The files are `training`, `correlation`, `ranks`, `confusion` and `comparison`, each written
    atomically. Returns their paths.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [path.name for path in save_plots(folder, records=[{"epoch": 1, "loss": 0.5}])]
    ['training.png', 'training.svg']
    """
    figures = _draw(report, records, structures, reports_by_method, classes, width=WIDE)
    contents = {
        f"{name}.{kind}": render(figure, kind)
        for name, figure in figures.items()
        for kind in _KINDS
    }
    return [_write(Path(folder) / name, content) for name, content in contents.items()]


def _write(path: str | os.PathLike[str], content: str | bytes) -> Path:
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, content.encode() if isinstance(content, str) else content)
    return target


def _draw(
    report: Report | None,
    records: Sequence[Record],
    structures: Mapping[str, CorrelationStructure] | None,
    reports_by_method: Mapping[str, Sequence[Report]] | None,
    classes: ClassReport | None,
    *,
    width: float,
) -> dict[str, Figure]:
    """A figure, `width` inches wide, of each thing that is given, by name."""
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


def _inline_plots(draw: Callable[..., dict[str, Figure]]) -> dict[str, dict[str, str]]:
    """Every figure as SVG, drawn for a wide and for a narrow screen; CSS shows one of them."""
    plots: dict[str, dict[str, str]] = {}
    for css_class, width in (("wide", WIDE), ("narrow", NARROW)):
        for name, figure in draw(width=width).items():
            prefix = f"{name}-{css_class[0]}"
            svg = inline_svg(figure, label=_ALTERNATIVES[name], prefix=prefix, css_class=css_class)
            plots.setdefault(name, {"caption": _CAPTIONS[name]})[css_class] = _safe(svg)
    return plots


def _safe(html: str) -> str:
    """HTML that the templates take as it is."""
    safe: str = require("markupsafe", extra="plots", purpose="Writing pages").Markup(html)
    return safe


def _page(template: str, **values: Any) -> str:
    page: str = _environment().get_template(template).render(values, picture=cache(_picture))
    return page


@cache
def _environment() -> Environment:
    """The templates, with the functions and filters that they use."""
    jinja2 = require("jinja2", extra="plots", purpose="Writing pages")
    environment: Environment = jinja2.Environment(
        loader=jinja2.PackageLoader("ccal.reports"),
        autoescape=True,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.globals.update(
        colour_variables=colour_variables, labels=LABELS, meanings=MEANINGS, ties=TIES_MEAN
    )
    environment.filters.update(
        arrow=lambda name: name.replace(" -> ", " → "),
        digits=lambda number, count: f"{float(number):.{count}f}",
        short=lambda text, limit: short(str(text), limit),
        thousands=lambda number: f"{number:,}",
    )
    return environment


def _printable(value: Any) -> Any:
    """Text without what HTML cannot hold: control characters and lone surrogates."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    kept = re.sub("[\x00-\x08\x0b-\x1f\x7f-\x9f]", "\ufffd", value)
    return kept.encode("utf-8", "replace").decode("utf-8")


def _picture(item: str | Path) -> str | None:
    return None if isinstance(item, str) else data_uri(item)


def _by_direction(examples: Sequence[Example]) -> dict[str, list[Example]]:
    found: dict[str, list[Example]] = {}
    for example in examples:
        found.setdefault(example.direction, []).append(example)
    return found


def _class_rows(report: ClassReport) -> list[dict[str, Any]]:
    """Each class with its precision and its most frequent confusion, the most precise first."""
    order = report.precision.argsort(descending=True, stable=True).tolist()
    if len(order) > _CLASSES_SHOWN:
        order = [*order[: _CLASSES_SHOWN // 2], *order[-_CLASSES_SHOWN // 2 :]]
    rows = []
    for number in order:
        others = report.confusion[number].clone()
        right, others[number] = float(others[number]), 0.0
        rows.append(
            {
                "name": report.names[number],
                "precision": report.precision[number],
                "right": right,
                "wrong": report.names[int(others.argmax())],
                "share": float(others.max()),
            }
        )
    return rows
