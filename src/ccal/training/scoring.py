"""Evaluate a model on pairs of raw items."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ccal.data import Pairs, Rows
from ccal.errors import InputError
from ccal.evaluation import Report, Ties, evaluate_embeddings
from ccal.model import DualEncoder

__all__ = ["evaluate", "shared_view"]


def evaluate(
    model: DualEncoder,
    pairs: Pairs,
    *,
    ties: Ties = "optimistic",
    bootstrap: int = 1000,
    seed: int = 0,
) -> Report:
    """How well the two modalities of `pairs` find each other, in both directions.

    Pairs of one group share an item, such as the picture of five captions: that item is a query and
    a candidate once, and is found by any of its counterparts (the VSE protocol).

    >>> from ccal.encoders import LinearTower
    >>> same = LinearTower(4, 4)
    >>> same.start(np.zeros(4), np.eye(4))
    >>> model = DualEncoder(dim=4, projection="none", left=same, right=same)
    >>> rows = np.random.default_rng(0).normal(size=(50, 4))
    >>> evaluate(model, Pairs({"left": rows, "right": rows})).x_to_y.measures.mrr
    100.0
    """
    if pairs.names != model.modalities:
        raise InputError(
            f"The model joins {' and '.join(model.modalities)}, "
            f"the pairs are of {' and '.join(pairs.names)}."
        )
    if len(pairs) == 0:
        raise InputError("There are no pairs to evaluate.")
    name_x, name_y = pairs.names
    x, y = pairs.column(name_x), pairs.column(name_y)
    shared, groups, first = shared_view(pairs)
    if shared == 0:
        x = x.select(first)
    elif shared == 1:
        y = y.select(first)
    embedded_x, embedded_y = model.encode(name_x, x), model.encode(name_y, y)
    options: dict[str, Any] = {"ties": ties, "bootstrap": bootstrap, "seed": seed}
    if shared == 1:
        report = evaluate_embeddings(
            embedded_y, embedded_x, groups=groups, names=(name_y, name_x), **options
        )
        return Report(report.y_to_x, report.x_to_y, report.ties, report.draws)
    return evaluate_embeddings(
        embedded_x, embedded_y, groups=groups, names=(name_x, name_y), **options
    )


def shared_view(pairs: Pairs) -> tuple[int | None, torch.Tensor | None, NDArray[np.int64]]:
    """Which view (0 or 1) the pairs of a group share, the group of each pair, the first of each."""
    if pairs.group is None:
        return None, None, np.arange(len(pairs))
    _, first, group = np.unique(pairs.group, return_index=True, return_inverse=True)
    if len(first) == len(pairs):
        return None, None, np.arange(len(pairs))
    for view, name in enumerate(pairs.names):
        if _constant_in_groups(pairs.column(name), first[group]):
            return view, torch.from_numpy(group), first
    raise InputError(
        f"Pairs of one group must share their {pairs.names[0]} or their {pairs.names[1]}, "
        "but in some group both differ."
    )


def _constant_in_groups(rows: Rows, first: NDArray[np.int64]) -> bool:
    """Whether each row equals the first of its group."""
    for start in range(0, len(rows), 1024):
        part = slice(start, start + 1024)
        if rows.is_text:
            same = rows[part] == rows[first[part]]
        else:
            same = np.array_equal(rows[part], rows[first[part]])
        if not same:
            return False
    return True
