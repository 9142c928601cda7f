"""How well a model finds classes, and the class of an item."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from ccal.data import Pairs, Rows
from ccal.errors import InputError
from ccal.evaluation import ClassReport, evaluate_classes, reachable_k
from ccal.model import DualEncoder
from ccal.training.scoring import shared_view

__all__ = ["Searched", "evaluate_zero_shot", "labels_of"]


def evaluate_zero_shot(
    model: DualEncoder,
    pairs: Pairs,
    *,
    k: int = 50,
    candidates: Callable[[Rows], Tensor] | None = None,
) -> ClassReport:
    """Classes find their x with their y, and an x finds its class; `pairs` have labels.

    x are the pictures, y the captions. Pairs of one group share their x, which is a candidate once.
    If no class has k of them, the largest class sets k. `candidates` embeds all x (n, features)
    together; by default the model embeds each by itself.

    >>> from ccal.encoders import LinearTower
    >>> same = LinearTower(4, 4)
    >>> same.start(np.zeros(4), np.eye(4))
    >>> model = DualEncoder(dim=4, projection="none", image=same, text=same)
    >>> rows = np.repeat(np.eye(4), 3, axis=0)
    >>> pairs = Pairs({"image": rows, "text": rows}, label=np.repeat(range(4), 3))
    >>> evaluate_zero_shot(model, pairs, k=3).ap
    100.0
    """
    found = Searched.of(model, pairs, candidates)
    return evaluate_classes(
        found.queries,
        found.query_labels,
        found.items,
        found.item_labels,
        k=reachable_k(found.item_labels, k),
        names=found.names,
    )


@dataclass(frozen=True)
class Searched:
    """Embeddings of all y as queries (q, dim) and of all x as items (n, dim), with their classes.

    Labels count from 0 in the order of `names`; `rows` are the x behind the items.
    """

    queries: Tensor
    query_labels: Tensor
    items: Tensor
    item_labels: Tensor
    names: list[str]
    rows: Rows

    @classmethod
    def of(
        cls,
        model: DualEncoder,
        pairs: Pairs,
        candidates: Callable[[Rows], Tensor] | None = None,
    ) -> Self:
        """Embed pairs as `evaluate_zero_shot` does."""
        labels, names = labels_of(pairs)
        if pairs.names != model.modalities:
            raise InputError(
                f"The model joins {' and '.join(model.modalities)}, "
                f"the pairs are of {' and '.join(pairs.names)}."
            )
        name_x, name_y = pairs.names
        shared, _, first = shared_view(pairs)
        if shared == 1:
            first = np.arange(len(pairs))
        rows = pairs.column(name_x).select(first)
        items = model.encode(name_x, rows) if candidates is None else candidates(rows)
        queries = model.encode(name_y, pairs.column(name_y))
        return cls(queries, labels, items, labels[torch.from_numpy(first)], names, rows)


def labels_of(pairs: Pairs) -> tuple[Tensor, list[str]]:
    """The class of each pair as a number (n,), and the names of the classes."""
    if pairs.label is None:
        raise InputError("The pairs have no labels, so there are no classes to find; pass label=.")
    names, numbers = np.unique(pairs.label, return_inverse=True)
    return torch.from_numpy(numbers), [str(name) for name in names]
