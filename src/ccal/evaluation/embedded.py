"""`EmbeddedPairs`: pairs after the model, embedded once for every measure, page and export."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ccal.errors import InputError
from ccal.evaluation.calibration import Calibration, Reliability
from ccal.evaluation.classes import (
    ClassReport,
    class_average_precision,
    class_means,
    evaluate_classes,
    reachable_k,
)
from ccal.evaluation.protocol import Report, Ties, evaluate_embeddings
from ccal.positives import Positives


@dataclass(frozen=True)
class EmbeddedPairs:
    """n pairs of two modalities, with each item embedded once although several pairs may share it.

    Attributes:
        names: of the two modalities.
        x: (a, k) embeddings of the items of the first modality.
        y: (b, k) those of the second.
        x_rows: (n,) the row of x of each pair.
        y_rows: (n,) the row of y of each pair.
        raw: x and y before the hub correction; None if there is none.
        labels: (n,) class of each pair, counted from 0; None without classes.
        classes: their names.
        groups: (n,) integers, where each x of a group belongs to each y of it; None without groups.
        averaged: (a, k) each x as the mean of its `neighbours` nearest, which classes look for;
            None if they look for x.
        neighbours: number of items that a mean is taken over.
        corrected_classes: (c, k) classes with the hub correction; None if they are the means of
            their y.

    >>> rows = torch.arange(4)
    >>> pairs = EmbeddedPairs(("image", "text"), torch.eye(2), torch.eye(2)[[0, 0, 1, 1]],
    ...                       rows // 2, rows)
    >>> pairs.evaluate(bootstrap=0).x_to_y.measures.r1
    100.0
    """

    names: tuple[str, str]
    x: Tensor
    y: Tensor
    x_rows: Tensor
    y_rows: Tensor
    raw: tuple[Tensor, Tensor] | None = None
    labels: Tensor | None = None
    classes: tuple[str, ...] = ()
    groups: Tensor | None = None
    averaged: Tensor | None = None
    neighbours: int = 1
    corrected_classes: Tensor | None = None

    def __len__(self) -> int:
        return len(self.x_rows)

    @cached_property
    def positives(self) -> Positives:
        """Which items belong together: those of a pair, and those of a group."""
        return Positives(self.x_rows, self.y_rows, self.groups)

    def first_pairs(self, modality: int) -> Tensor:
        """The first pair of each item of modality 0 or 1: (a,) or (b,)."""
        rows, items = ((self.x_rows, self.x), (self.y_rows, self.y))[modality]
        numbers = torch.arange(len(rows), device=rows.device)
        last = numbers.new_full((len(items),), len(rows))
        return last.scatter_reduce(0, rows, numbers, "amin")

    def raw_pairs(self, at_most: int | None = None) -> tuple[Tensor, Tensor]:
        """Raw embeddings (n, k) of both modalities, pair by pair; of many pairs evenly spaced ones.

        >>> EmbeddedPairs(("a", "b"), torch.eye(2), torch.eye(2), torch.arange(2),
        ...               torch.arange(2)).raw_pairs(1)[0]
        tensor([[1., 0.]])
        """
        rows = evenly_spaced(len(self), at_most)
        x, y = self.raw or (self.x, self.y)
        return x[self.x_rows[rows]], y[self.y_rows[rows]]

    def raw_items(self, at_most: int) -> tuple[Tensor, Tensor, Positives]:
        """Raw x, raw y and which belong together; of many pairs the items of evenly spaced ones."""
        x, y = self.raw or (self.x, self.y)
        if len(self) <= at_most:
            return x, y, self.positives
        some = evenly_spaced(len(self), at_most)
        keys = [rows[some].cpu().numpy() for rows in (self.x_rows, self.y_rows)]
        groups = None if self.groups is None else self.groups[some].cpu().numpy()
        positives, x_first, y_first = Positives.of_items(keys[0], keys[1], groups)
        return x[keys[0][x_first]], y[keys[1][y_first]], positives

    def evaluate(
        self, *, ties: Ties = "pessimistic", bootstrap: int = 1000, seed: int = 0
    ) -> Report:
        """How well the two modalities find each other; see `evaluate_embeddings`.

        Every item is a query and a candidate once, however many pairs it is in, and finds any of
        its counterparts (the VSE protocol).
        """
        options: dict[str, Any] = {"ties": ties, "bootstrap": bootstrap, "seed": seed}
        return evaluate_embeddings(
            self.x, self.y, groups=self.positives, names=self.names, **options
        )

    def reliability(self, calibrations: Mapping[str, Calibration]) -> tuple[Reliability, ...]:
        """How often hits that a model calls strong, fair and weak are right, in each direction."""
        (x, y), (rows, columns) = self.names, self.positives.links()
        directions = ((x, y, self.x, self.y, rows, columns), (y, x, self.y, self.x, columns, rows))
        return tuple(
            Reliability.of(f"{query} -> {item}", calibrations[query], queries, items, (own, other))
            for query, item, queries, items, own, other in directions
            if query in calibrations
        )

    def class_queries(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Each class as a query, with its label, and the x, averaged or not, with theirs."""
        if self.labels is None:
            raise InputError(
                "The pairs have no labels, so there are no classes to find; pass label=."
            )
        queries, labels = class_means(self.y[self.y_rows], self.labels)
        if self.corrected_classes is not None:
            queries = self.corrected_classes
        items = self.x if self.averaged is None else self.averaged
        return queries, labels, items, self.labels[self.first_pairs(0)]

    def evaluate_classes(self, *, k: int = 50) -> ClassReport:
        """How classes find their x by their y, and an x its class; see `ccal.evaluation`.

        If no class has k items, the largest class sets k.
        """
        classes, labels, items, item_labels = self.class_queries()
        assert self.labels is not None
        k = reachable_k(item_labels, k)
        options: dict[str, Any] = {"k": k, "names": self.classes, "classes": classes}
        singles = self.y[self.y_rows]
        report = evaluate_classes(singles, self.labels, items, item_labels, **options)
        if self.averaged is None:
            return report
        alone = class_average_precision(classes, labels, self.x, item_labels, k=k)
        return replace(report, neighbours=self.neighbours, ap_alone=alone)


def evenly_spaced(n: int, at_most: int | None = None) -> Tensor:
    """All row numbers below n, or `at_most` evenly spaced ones.

    >>> evenly_spaced(10, 4)
    tensor([0, 3, 6, 9])
    """
    if at_most is None or at_most >= n:
        return torch.arange(n)
    return torch.linspace(0, n - 1, at_most, dtype=torch.float64).long()
