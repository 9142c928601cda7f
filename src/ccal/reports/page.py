"""The page of a run, and the page of a comparison: one HTML file each, nothing beside it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ccal.evaluation import ClassReport, CorrelationStructure, Report
from ccal.files import write_atomically
from ccal.reports.comparison import check_methods
from ccal.reports.epochs import Record, best_epoch, by_stage
from ccal.reports.examples import Example
from ccal.reports.gallery import gallery
from ccal.reports.inline import inline_svg
from ccal.reports.markup import document, escape, section, shorten
from ccal.reports.saving import draw
from ccal.reports.style import NARROW, WIDE
from ccal.reports.tables import (
    class_table,
    correlation_table,
    direction_name,
    measure_table,
    method_table,
    precision_table,
)

__all__ = ["write_comparison", "write_report"]


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
    classes: ClassReport | None = None,
    warnings: Sequence[str] = (),
) -> Path:
    """Write what is known of a run to one HTML file, whole or not at all; returns its path.

    `facts` are what a reader has to know (method, data, settings), `records` the lines of
    metrics.jsonl, `structures` correlation structures by method, `examples` those of
    `pick_examples` and `pick_classes`, `classes` how classes are found. Sections without content
    are left out. All texts are shown as they are.

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
    plots = _plots(report, records, structures, reports_by_method, classes)
    page = document(
        title,
        _warnings(warnings),
        section("Summary", _lead(report), measure_table(report)),
        _class_section(classes, plots),
        section("About this run", _facts(facts)),
        _comparison_section(reports_by_method, plots),
        section("Training", plots.get("training", ""), _best(records)),
        _correlation_section(structures, plots),
        section("Ranks", plots["ranks"]),
        section("Examples", gallery(examples)),
    )
    return _write(path, page)


def write_comparison(
    path: str | os.PathLike[str],
    *,
    title: str,
    facts: Mapping[str, str],
    reports_by_method: Mapping[str, Sequence[Report]],
    structures: Mapping[str, CorrelationStructure] | None = None,
    warnings: Sequence[str] = (),
) -> Path:
    """Write methods side by side to one HTML file, whole or not at all; returns its path.

    Each method has one `Report` a seed. The page holds one table of methods and directions, their
    plot, and the correlation structures.
    """
    check_methods(reports_by_method)
    plots = _plots(None, (), structures, reports_by_method)
    page = document(
        title,
        _warnings(warnings),
        _comparison_section(reports_by_method, plots),
        section("About this comparison", _facts(facts)),
        _correlation_section(structures, plots),
    )
    return _write(path, page)


def _write(path: str | os.PathLike[str], page: str) -> Path:
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, page.encode())
    return target


def _plots(
    report: Report | None,
    records: Sequence[Record],
    structures: Mapping[str, CorrelationStructure] | None,
    reports_by_method: Mapping[str, Sequence[Report]] | None,
    classes: ClassReport | None = None,
) -> dict[str, str]:
    """Every figure as HTML, drawn for a wide and for a narrow screen; CSS shows one of them."""
    wide, narrow = (
        draw(report, records, structures, reports_by_method, classes, width=width)
        for width in (WIDE, NARROW)
    )
    return {
        name: "<figure>\n"
        + inline_svg(figure, label=_ALTERNATIVES[name], prefix=f"{name}-w", css_class="wide")
        + "\n"
        + inline_svg(
            narrow[name], label=_ALTERNATIVES[name], prefix=f"{name}-n", css_class="narrow"
        )
        + f"\n<figcaption>{escape(_CAPTIONS[name])}</figcaption>\n</figure>"
        for name, figure in wide.items()
    }


_ALTERNATIVES = {
    "training": "Line plots of the training loss and of the validation MRR or AP@50 by epoch.",
    "correlation": "Line plot of the canonical correlations by dimension; means in the table.",
    "ranks": "Line plot of the share of queries whose counterpart is among the first k, by k; "
    "R@1, R@5 and R@10 are in the summary.",
    "confusion": "Matrix of classes and what their items are taken for; the table has the worst.",
    "comparison": "Dot plot of the MRR of each method in both directions; the table has the same.",
}
_CAPTIONS = {
    "training": "Vertical lines: the learning rate was divided (dashed); the best epoch (solid).",
    "correlation": "How strongly each pair of directions of the two views is correlated; 1 is the "
    "most there can be. Solid on training pairs, dashed on held-out pairs; dotted is what CCA "
    "finds in independent noise of the same size.",
    "ranks": "The further up and left, the better. Numbers at the markers are R@1, R@5 and R@10.",
    "confusion": "Each row is a class and shows which class's queries its items are nearest to: "
    "blue is right, orange wrong, and the fuller the colour, the larger the share.",
    "comparison": "Large marker: mean over seeds; small dots below: the seeds; whisker: 95% "
    "interval over test queries, where it was computed.",
}


def _warnings(warnings: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(shorten(text, 2000))}</li>" for text in warnings)
    return f'<ul class="warnings" role="list" aria-label="Warnings">{items}</ul>' if items else ""


def _lead(report: Report) -> str:
    """The result for those who do not know the measures."""
    sentences = []
    for one in (report.x_to_y, report.y_to_x):
        sentences.append(
            f"<strong>{direction_name(one)}</strong>: of {len(one.ranks):,} queries, "
            f"<strong>{one.measures.r1:.1f}%</strong> find their counterpart first among "
            f"{one.candidates:,} candidates, and {one.measures.r10:.1f}% among the first ten."
        )
    return "".join(f"<p>{sentence}</p>" for sentence in sentences)


def _facts(facts: Mapping[str, str]) -> str:
    rows = "".join(
        f"<dt>{escape(shorten(str(name), 200))}</dt><dd>{escape(shorten(str(fact), 2000))}</dd>\n"
        for name, fact in facts.items()
    )
    return f"<dl>\n{rows}</dl>" if rows else ""


def _best(records: Sequence[Record]) -> str:
    best = best_epoch(by_stage(records))
    if best is None:
        return ""
    stage, epoch = escape(shorten(best[0], 80)), best[1]
    return f'<p class="note">Best on validation pairs: epoch {epoch} of stage {stage}.</p>'


def _class_section(classes: ClassReport | None, plots: Mapping[str, str]) -> str:
    if classes is None:
        return ""
    return section("Classes", class_table(classes), plots["confusion"], precision_table(classes))


def _correlation_section(
    structures: Mapping[str, CorrelationStructure] | None, plots: Mapping[str, str]
) -> str:
    if not structures:
        return ""
    return section("Correlation structure", plots["correlation"], correlation_table(structures))


def _comparison_section(
    reports_by_method: Mapping[str, Sequence[Report]] | None, plots: Mapping[str, str]
) -> str:
    if not reports_by_method:
        return ""
    return section("Methods", method_table(reports_by_method), plots["comparison"])
