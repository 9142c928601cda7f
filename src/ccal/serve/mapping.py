"""The map: items of a collection in two dimensions."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ccal.retrieval.backends.base import Vectors
from ccal.serve.collection import Card
from ccal.serve.describing import short

POINTS = 5000
"""Most points of a map: more cannot be told apart."""


def map_of(total: int, cards: Sequence[Card], vectors: Vectors) -> dict[str, Any]:
    """A map of `total` items, or of some of them: cards and vectors (n, d) as columns."""
    modalities = [card.modality for card in cards]
    return {
        "total": total,
        "ids": [card.id for card in cards],
        "modalities": modalities,
        "kinds": [card.kind for card in cards],
        "labels": [short(card.title, 80) for card in cards],
        **plane(vectors, modalities),
    }


def plane(vectors: Vectors, groups: Sequence[str]) -> dict[str, Any]:
    """Coordinates x and y of vectors (n, d) within -1 and 1, by principal components.

    Each group (n,) is centred by itself: modalities lie somewhat apart, and otherwise the first
    component would only separate them. `explained` are shares of the variance.

    >>> plane(np.float32([[0, 0], [2, 0], [4, 1]]), ["a"] * 3)["explained"][0] > 0.9
    True
    """
    rows = torch.from_numpy(np.asarray(vectors, np.float64))
    for name in set(groups):
        members = torch.tensor([group == name for group in groups])
        rows[members] -= rows[members].mean(0)
    _, sizes, directions = torch.linalg.svd(rows, full_matrices=False)
    directions = directions[:2]
    # The sign of a component is arbitrary; the largest entry becomes positive, so that maps repeat.
    signs = directions.gather(1, directions.abs().argmax(1, keepdim=True)).sign()
    points = torch.zeros(len(rows), 2, dtype=torch.float64)
    points[:, : len(directions)] = rows @ (directions * signs).mT
    points /= points.abs().max().clamp_min(1e-12)
    shares = sizes.square() / sizes.square().sum().clamp_min(1e-12)
    x, y = ([round(value, 4) for value in column] for column in points.T.tolist())
    return {"x": x, "y": y, "explained": shares[:2].tolist()}
