"""AP@k over classes: zero-shot retrieval as in Reed et al. (2016)."""

from __future__ import annotations

import torch
from torch import Tensor

from ccal.errors import InputError
from ccal.evaluation.inputs import Array, embeddings, labels, unit_pair

__all__ = ["class_average_precision", "class_precisions", "item_average_precision"]


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
    rows = embeddings(queries, "queries")
    classes, place = labels(query_labels, rows, "query_labels", "queries").unique(
        return_inverse=True
    )
    means = rows.new_zeros(len(classes), rows.shape[1]).index_add_(0, place, rows)
    means /= torch.bincount(place)[:, None]
    return _precisions(means, classes, items, item_labels, k)


def item_average_precision(
    queries: Array, query_labels: Array, items: Array, item_labels: Array, *, k: int = 50
) -> float:
    """AP@k in % with every row of `queries` a query of its own: mean over classes of their mean.

    Arguments as in `class_average_precision`; a class counts once, however many its queries.

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
    classes, place = wanted.unique(return_inverse=True)
    precision = hits.double().mean(1)
    sums = precision.new_zeros(len(classes)).index_add_(0, place, precision)
    return 100 * sums / torch.bincount(place)
