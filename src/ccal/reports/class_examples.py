"""Classes as queries, with the items they found."""

from __future__ import annotations

import torch
from torch import Tensor

from ccal.errors import InputError
from ccal.evaluation import ClassReport, class_means
from ccal.evaluation.inputs import Array, unit_pair
from ccal.reports.examples import Example, Hit, Items, Kind, choose, shown

__all__ = ["pick_classes"]


def pick_classes(
    report: ClassReport,
    queries: Array,
    query_labels: Array,
    items: Array,
    item_labels: Array,
    *,
    shows: Items | None = None,
    name: str = "item",
    each: int = 2,
    k: int = 5,
) -> list[Example]:
    """The classes of best, typical and worst precision, with the `k` first items they found.

    `report` is what `evaluate_classes` said of these embeddings, with the labels 0, 1, ... in the
    order of its names. `shows` (n) are the items as `pick_examples` takes them; those that are
    neither texts nor paths are told by their class.

    >>> from ccal.evaluation import evaluate_classes
    >>> given = torch.eye(3), torch.tensor([0, 1, 2]), torch.eye(3), torch.tensor([0, 2, 1])
    >>> report = evaluate_classes(*given, k=1, names=["auk", "crow", "wren"])
    >>> [(e.query, e.note, e.hits[0].item) for e in pick_classes(report, *given, each=1, k=1)][:2]
    [('auk', '100% of its first 1', 'auk'), ('crow', '0% of its first 1', 'wren')]
    """
    if each < 1 or k < 1:
        raise InputError(f"each and k must be at least 1, got {each} and {k}.")
    means, classes = class_means(queries, query_labels)
    x, y = unit_pair(items, means, ("items", "queries"))
    if classes.tolist() != list(range(len(report.names))):
        raise InputError(
            f"The labels must be 0 to {len(report.names) - 1}, one for each class of the report."
        )
    labels = torch.as_tensor(item_labels).to(x.device)
    order = report.precision.argsort(descending=True, stable=True).tolist()
    view = _View(x, labels, shows, report)
    return [
        view.example(number, kind, y[number], k, f"class -> {name}")
        for kind, number in choose(order, each)
    ]


class _View:
    """Unit rows (n, d) of the items with the class of each."""

    def __init__(
        self, rows: Tensor, labels: Tensor, shows: Items | None, report: ClassReport
    ) -> None:
        self.rows, self.labels, self.shows, self.report = rows, labels, shows, report

    def example(self, number: int, kind: Kind, query: Tensor, k: int, direction: str) -> Example:
        scores = self.rows @ query
        order = scores.sort(descending=True, stable=True).indices
        right = self.labels[order] == number
        rank = 1 + int(right.int().argmax())

        def hit(place: int) -> Hit:
            row = int(order[place])
            label = self.report.names[int(self.labels[row])]
            item = shown(self.shows, row, label)
            note = "" if item == label else label
            return Hit(item, place + 1, float(scores[row]), bool(right[place]), note)

        report = self.report
        return Example(
            direction=direction,
            kind=kind,
            query=report.names[number],
            rank=rank,
            hits=tuple(hit(place) for place in range(min(k, len(order)))),
            counterpart=hit(rank - 1),
            note=f"{report.precision[number]:.0f}% of its first {report.k}",
        )
