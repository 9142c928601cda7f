"""Numbers as HTML tables: measures, methods, correlations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev

from ccal.evaluation import ClassReport, CorrelationStructure, Direction, Report
from ccal.evaluation.measures import LABELS
from ccal.reports.markup import escape, shorten, table

__all__ = [
    "class_table",
    "correlation_table",
    "direction_name",
    "measure_table",
    "method_table",
    "precision_table",
]

_MEANINGS = {
    "r1": "counterpart first, % of queries",
    "r5": "among the first 5, %",
    "r10": "among the first 10, %",
    "mr": "median rank",
    "mrr": "mean of 1 / rank, %",
    "mean_rank": "mean rank",
}


def direction_name(direction: Direction) -> str:
    """The name as HTML, with an arrow."""
    name = escape(shorten(direction.name, 80).replace(" -> ", " → "))
    return f'<span class="name">{name}</span>'


def measure_table(report: Report) -> str:
    """All measures of both directions, with their intervals."""
    pair = report.x_to_y, report.y_to_x
    rows = [
        [f"{label}<br><small>{_MEANINGS[key]}</small>", *(_interval(one, key) for one in pair)]
        for key, label in LABELS.items()
    ]
    caption = f"{report.ties.capitalize()} ties."
    if report.draws:
        caption += f" In brackets: 95% intervals of {report.draws:,} bootstrap draws."
    return table(caption, ["Measure", *map(direction_name, pair)], [("", rows)])


def class_table(report: ClassReport) -> str:
    """How classes find their items, and items their class."""
    rows = [
        [f"AP@{report.k}, one query a class", f"{report.ap:.1f}"],
        [f"AP@{report.k}, every query alone", f"{report.ap_single:.1f}"],
        ["class of an item, right at once", f"{report.accuracy:.1f}"],
        ["class of an item, among the nearest five", f"{report.accuracy_5:.1f}"],
    ]
    caption = (
        f"In %. {len(report.names):,} classes, {report.queries:,} queries, {report.items:,} items. "
        f"AP@{report.k}: share of the right class among the first {report.k} items, mean over "
        "classes; the query of a class is the mean of its queries."
    )
    return table(caption, ["Measure", "%"], [("", rows)])


def precision_table(report: ClassReport, limit: int = 60) -> str:
    """Each class with its precision and what its items are taken for; the best first."""
    order = report.precision.argsort(descending=True, stable=True).tolist()
    if len(order) > limit:
        order = [*order[: limit // 2], *order[-limit // 2 :]]
    rows = []
    for number in order:
        others = report.confusion[number].clone()
        own, others[number] = float(others[number]), 0.0
        taken, share = int(others.argmax()), float(others.max())
        wrong = f"{escape(shorten(report.names[taken], 40))} {share:.0f}" if share else ""
        name = escape(shorten(report.names[number], 80))
        rows.append([name, f"{report.precision[number]:.0f}", f"{own:.0f}", wrong])
    left = len(report.names) - len(rows)
    caption = "In %." + (f" {left:,} classes in the middle are left out." if left else "")
    head = ["Class", f"right of its first {report.k}", "items told right", "most taken for"]
    return table(caption, head, [("", rows)])


def method_table(reports_by_method: Mapping[str, Sequence[Report]]) -> str:
    """Methods and directions: means over seeds, with their standard deviations."""
    keys = ("mrr", "r1", "r5", "r10", "mr")
    best = [
        max(fmean(_values(reports, which, "mrr")) for reports in reports_by_method.values())
        for which in (0, 1)
    ]
    groups = []
    for method, reports in reports_by_method.items():
        rows = []
        for which, direction in enumerate((reports[0].x_to_y, reports[0].y_to_x)):
            cells = [_spread(_values(reports, which, key)) for key in keys]
            if fmean(_values(reports, which, "mrr")) == best[which]:
                cells[0] = f"<strong>{cells[0]}</strong>"
            rows.append([direction_name(direction), *cells])
        seeds = f" <small>({len(reports)} seeds)</small>" if len(reports) > 1 else ""
        groups.append((escape(shorten(method, 80)) + seeds, rows))
    caption = "R@k and MRR in %; MR is the median rank. Bold: the highest MRR of its direction."
    if any(len(reports) > 1 for reports in reports_by_method.values()):
        caption += " Means over seeds ± their standard deviation."
    return table(caption, ["Direction", *(LABELS[key] for key in keys)], groups)


def correlation_table(structures: Mapping[str, CorrelationStructure]) -> str:
    """Mean canonical correlations by method."""
    rows = [
        [
            escape(shorten(method, 80)),
            f"{structure.train.mean():.3f}",
            "–" if structure.held_out is None else f"{structure.held_out.mean():.3f}",
            f"{structure.chance:.3f}",
            f"{structure.samples:,}",
        ]
        for method, structure in structures.items()
    ]
    head = ["Method", "training", "held out", "chance", "pairs"]
    return table("Mean canonical correlation.", head, [("", rows)])


def _interval(direction: Direction, key: str) -> str:
    value = f"{direction.measures.as_dict()[key]:.1f}"
    if direction.low is None or direction.high is None:
        return value
    low, high = direction.low.as_dict()[key], direction.high.as_dict()[key]
    return f"{value} <small>[{low:.1f}, {high:.1f}]</small>"


def _values(reports: Sequence[Report], which: int, key: str) -> list[float]:
    return [(r.x_to_y, r.y_to_x)[which].measures.as_dict()[key] for r in reports]


def _spread(values: Sequence[float]) -> str:
    mean = f"{fmean(values):.1f}"
    return mean if len(values) == 1 else f"{mean} <small>± {stdev(values):.1f}</small>"
