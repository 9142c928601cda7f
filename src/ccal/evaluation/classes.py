"""Retrieval between items and classes: AP@k with one query a class, and the class of an item.

AP@k over classes is the measure of zero-shot retrieval in Reed et al. (2016).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ccal.errors import InputError
from ccal.evaluation.inputs import Array, embeddings, labels, unit_pair


def class_average_precision(
    queries: Array, query_labels: Array, items: Array, item_labels: Array, *, k: int = 50
) -> float:
    """AP@k in %: one query a class, the mean of the class's rows of `queries`.

    `queries` (q, d) and `items` (n, d) with integer class labels (q,) and (n,). The mean is taken
    of the rows as given: scale them to length 1 first if all should count alike. The precision of
    a query is the share of its class among the k items of highest cosine; AP@k is its mean over
    the classes. A class of fewer than k items cannot reach 100%.

    >>> items = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.8, 0.1]])
    >>> class_average_precision(items, torch.tensor([0, 0, 1, 1]),
    ...                         items, torch.tensor([0, 0, 1, 1]), k=2)
    100.0
    """
    return class_precisions(queries, query_labels, items, item_labels, k=k).mean().item()


def class_precisions(
    queries: Array, query_labels: Array, items: Array, item_labels: Array, *, k: int = 50
) -> Tensor:
    """The precision (c,) in % of each class, ascending by label, whose mean is AP@k.

    >>> items = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.8, 0.1]])
    >>> truth = torch.tensor([0, 0, 1, 1])
    >>> class_precisions(items[[0, 3]], torch.tensor([0, 1]), items, truth, k=2)
    tensor([100.,  50.], dtype=torch.float64)
    """
    means, classes = class_means(queries, query_labels, "queries", "query_labels")
    return _precisions(means, classes, items, item_labels, k)


def item_average_precision(
    queries: Array, query_labels: Array, items: Array, item_labels: Array, *, k: int = 50
) -> float:
    """AP@k in % with every row of `queries` a query of its own.

    It is the mean over classes of the mean over their queries, so that a class of many queries
    counts as much as one of few. Arguments as in `class_average_precision`.

    >>> items = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.8, 0.1]])
    >>> truth = torch.tensor([0, 0, 1, 1])
    >>> item_average_precision(items, truth, items, truth, k=2)
    75.0
    """
    rows = embeddings(queries, "queries")
    return _precisions(rows, query_labels, items, item_labels, k).mean().item()


def _precisions(
    queries: Tensor, query_labels: Array, items: Array, item_labels: Array, k: int
) -> Tensor:
    """The mean precision (c,) in % of the queries of each class."""
    x, y = unit_pair(queries, items, ("queries", "items"))
    wanted = labels(query_labels, x, "query_labels", "queries")
    given = labels(item_labels, y, "item_labels", "items")
    if not 1 <= k <= len(y):
        raise InputError(f"k must lie between 1 and the number of items, {len(y)}, got {k}.")
    missing = wanted[~torch.isin(wanted, given)].unique()
    if len(missing):
        raise InputError(
            f"{len(missing)} classes have queries but no items, the first is {int(missing[0])}."
        )
    hits = torch.cat(
        [
            given[(part @ y.mT).topk(k).indices] == right[:, None]
            for part, right in zip(x.split(256), wanted.split(256), strict=True)
        ]
    )
    classes, index = wanted.unique(return_inverse=True)
    precision = hits.double().mean(1)
    sums = precision.new_zeros(len(classes)).index_add_(0, index, precision)
    return 100 * sums / torch.bincount(index)


@dataclass(frozen=True)
class ClassReport:
    """How well classes find their items, and items their class, in %; print it for a table.

    Attributes:
        k: the number of items that AP@k looks at.
        ap: AP@k with one query a class, the mean of the class's queries.
        ap_single: AP@k with each query on its own, the mean over classes of their mean.
        accuracy: items whose nearest class is their own.
        accuracy_5: items whose class is among the nearest five.
        queries: their number.
        items: their number.
        names: (c,) of the classes, in the order of their labels.
        neighbours: number of items over which each item is averaged; 1 if each stands by itself.
        ap_alone: `ap` if each item stood by itself; None if it does.
        precision: (c,) precision among the first k of each class; its mean is `ap`.
        confusion: (c, c) the share of the items of a row's class that are nearest to a column's.
    """

    k: int
    ap: float
    ap_single: float
    accuracy: float
    accuracy_5: float
    queries: int
    items: int
    names: tuple[str, ...]
    precision: Tensor = field(repr=False, compare=False)
    confusion: Tensor = field(repr=False, compare=False)
    neighbours: int = 1
    ap_alone: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Numbers and names only, ready for JSON."""
        scalars = ["k", "ap", "ap_single", "accuracy", "accuracy_5", "queries", "items"]
        scalars += ["neighbours", "ap_alone"] if self.ap_alone is not None else []
        return {
            **{name: getattr(self, name) for name in scalars},
            "precision": dict(zip(self.names, self.precision.tolist(), strict=True)),
            "confused": [list(pair) for pair in self.confused()],
        }

    def confused(self, count: int = 10) -> list[tuple[str, str, float]]:
        """The pairs of different classes that are confused most: (true, taken for, share in %)."""
        pairs = [
            (true, taken, share)
            for true, row in zip(self.names, self.confusion.tolist(), strict=True)
            for taken, share in zip(self.names, row, strict=True)
            if true != taken and share
        ]
        return sorted(pairs, key=lambda pair: -pair[2])[:count]

    def __str__(self) -> str:
        one = f"AP@{self.k}, one query a class"
        rows = {one: self.ap}
        if self.ap_alone is not None:
            averaged = f"{one}, items averaged over {self.neighbours} neighbours"
            rows = {averaged: self.ap, f"{one}, each item by itself": self.ap_alone}
        rows |= {
            f"AP@{self.k}, every query alone": self.ap_single,
            "item -> class, right at once": self.accuracy,
            "item -> class, among five": self.accuracy_5,
        }
        width = max(map(len, rows))
        lines = [f"{name.ljust(width)}  {value:5.1f}" for name, value in rows.items()]
        counts = f"{len(self.names):,} classes, {self.queries:,} queries, {self.items:,} items"
        last = f"In %; {counts}."
        if self.ap_alone is not None:
            last += " Items are averaged unless it says otherwise."
        return "\n".join([*lines, last])


def class_means(
    rows: Array, row_labels: Array, name: str = "rows", label_name: str = "row_labels"
) -> tuple[Tensor, Tensor]:
    """The mean (c, d) of the rows (n, d) of each class, and the classes (c,), ascending.

    >>> class_means(torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 1.0]]), torch.tensor([7, 7, 2]))
    (tensor([[0., 1.],
            [2., 0.]]), tensor([2, 7]))
    """
    given = embeddings(rows, name)
    classes, index = labels(row_labels, given, label_name, name).unique(return_inverse=True)
    means = given.new_zeros(len(classes), given.shape[1]).index_add_(0, index, given)
    return means / torch.bincount(index)[:, None], classes


def reachable_k(item_labels: Array, k: int) -> int:
    """k, or the size of the largest class if that is less, since no query could reach 100% then.

    >>> reachable_k(torch.tensor([3, 3, 5]), 50)
    2
    """
    _, sizes = torch.as_tensor(item_labels).unique(return_counts=True)
    return min(k, int(sizes.max()))


def evaluate_classes(
    queries: Array,
    query_labels: Array,
    items: Array,
    item_labels: Array,
    *,
    k: int = 50,
    names: Sequence[str] | None = None,
    classes: Array | None = None,
) -> ClassReport:
    """Both directions between `queries` (q, d), such as captions, and `items` (n, d), by cosine.

    Queries and items have integer labels of the same classes. Means of a class's queries are taken
    of the rows as given: scale them to length 1 first if all should count alike. `names` are those
    of the classes, in the order of their labels, which stand for themselves otherwise. `classes`
    (c, d) are their embeddings in the same order; by default the means of their queries.

    >>> items = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.8, 0.1]])
    >>> report = evaluate_classes(items, torch.tensor([0, 0, 1, 1]),
    ...                           items, torch.tensor([0, 0, 1, 1]), k=2)
    >>> report.ap, report.accuracy
    (100.0, 75.0)
    >>> report.confused(1)
    [('1', '0', 50.0)]
    >>> print(report)
    AP@2, one query a class       100.0
    AP@2, every query alone        75.0
    item -> class, right at once   75.0
    item -> class, among five     100.0
    In %; 2 classes, 4 queries, 4 items.
    """
    means, present = class_means(queries, query_labels, "queries", "query_labels")
    if classes is not None and len(classes) != len(present):
        raise InputError(
            f"There are {len(present)} classes, but {len(classes)} embeddings of them."
        )
    means = means if classes is None else embeddings(classes, "classes")
    x, y = unit_pair(items, means, ("items", "classes"))
    truth = labels(item_labels, x, "item_labels", "items")
    unknown = truth[~torch.isin(truth, present)].unique()
    if len(unknown):
        raise InputError(
            f"{len(unknown)} classes have items but no queries, the first is {int(unknown[0])}."
        )
    if names is not None and len(names) != len(present):
        raise InputError(f"There are {len(present)} classes, but {len(names)} names.")
    index = torch.searchsorted(present, truth)
    nearest = (x @ y.mT).topk(min(5, len(present))).indices
    hits = nearest == index[:, None]
    confusion = torch.zeros(len(present), len(present), dtype=torch.float64, device=x.device)
    ones = torch.ones(len(index), dtype=torch.float64, device=x.device)
    confusion.index_put_((index, nearest[:, 0]), ones, accumulate=True)
    precision = class_precisions(means, present, items, item_labels, k=k)
    return ClassReport(
        k=k,
        ap=precision.mean().item(),
        ap_single=item_average_precision(queries, query_labels, items, item_labels, k=k),
        accuracy=100 * hits[:, 0].double().mean().item(),
        accuracy_5=100 * hits.any(1).double().mean().item(),
        queries=len(queries),
        items=len(x),
        names=tuple(map(str, present.tolist() if names is None else names)),
        precision=precision,
        confusion=100 * confusion / confusion.sum(1, keepdim=True).clamp_min(1),
    )
