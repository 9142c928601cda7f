"""Evaluate a model on pairs of raw items."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccal.data import Pairs, Rows
from ccal.errors import InputError
from ccal.evaluation import EmbeddedPairs, Report, Ties
from ccal.model import DualEncoder


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
    >>> same.initialise(np.zeros(4), np.eye(4))
    >>> model = DualEncoder(dim=4, projection="none", left=same, right=same)
    >>> rows = np.random.default_rng(0).normal(size=(50, 4))
    >>> evaluate(model, Pairs({"left": rows, "right": rows})).x_to_y.measures.mrr
    100.0
    """
    return embed_pairs(model, pairs).evaluate(ties=ties, bootstrap=bootstrap, seed=seed)


def embed_pairs(
    model: DualEncoder, pairs: Pairs, *, candidates: Callable[[Rows], Tensor] | None = None
) -> EmbeddedPairs:
    """Embed every item of `pairs` once, for all that is to be measured and shown.

    `candidates` embeds all x together; by default the model embeds each by itself.
    """
    if pairs.names != model.modalities:
        raise InputError(
            f"The model joins {' and '.join(model.modalities)}, "
            f"the pairs are of {' and '.join(pairs.names)}."
        )
    if len(pairs) == 0:
        raise InputError("There are no pairs to evaluate.")
    shared, groups, first = shared_view(pairs)
    rows = [torch.arange(len(pairs))] * 2
    columns = [pairs.column(name) for name in pairs.names]
    if shared is not None and groups is not None:
        rows[shared], columns[shared] = groups, columns[shared].select(first)
    raw, final = [], []
    for name, items in zip(pairs.names, columns, strict=True):
        if candidates is not None and name == pairs.names[0]:
            raw.append(candidates(items))
            final.append(raw[-1])
        else:
            raw.append(model.encode(name, items, corrected=False))
            final.append(model.correct(name, raw[-1]))
    labels, classes = (None, []) if pairs.label is None else labels_of(pairs)
    (x, y), (x_rows, y_rows) = final, rows
    return EmbeddedPairs(
        pairs.names, x, y, x_rows, y_rows, (raw[0], raw[1]), labels, tuple(classes)
    )


def labels_of(pairs: Pairs) -> tuple[Tensor, list[str]]:
    """The class of each pair as a number (n,), and the names of the classes."""
    if pairs.label is None:
        raise InputError("The pairs have no labels, so there are no classes to find; pass label=.")
    names, numbers = np.unique(pairs.label, return_inverse=True)
    return torch.from_numpy(numbers), [str(name) for name in names]


def shared_view(pairs: Pairs) -> tuple[int | None, Tensor | None, NDArray[np.int64]]:
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
