"""A map of the space: two directions in which items differ most."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ccal.retrieval.backends.base import Vectors

__all__ = ["POINTS", "evenly", "plane"]

POINTS = 5000
"""Most points of a map: more cannot be told apart."""


def evenly(count: int, most: int) -> list[int]:
    """Places of `most` or fewer out of `count`, evenly spaced.

    >>> evenly(10, 3)
    [0, 4, 9]
    """
    places: list[int] = np.linspace(0, count - 1, min(count, most)).astype(np.int64).tolist()
    return places


def plane(vectors: Vectors, groups: list[str]) -> dict[str, Any]:
    """Coordinates x and y of vectors (n, d) within -1 and 1, by principal components.

    Each group (n,) of vectors is centred on its own, since modalities lie somewhat apart and the
    first direction should not only tell them from each other. `explained` are shares of variance.

    >>> plane(np.float32([[0, 0], [2, 0], [4, 1]]), ["a"] * 3)["explained"][0] > 0.9
    True
    """
    rows = torch.from_numpy(np.asarray(vectors, np.float64))
    names = np.array(groups)
    for name in set(groups):
        members = torch.from_numpy(names == name)
        rows[members] -= rows[members].mean(0)
    count = min(2, *rows.shape)
    _, sizes, directions = torch.linalg.svd(rows, full_matrices=False)
    # A direction and its opposite are as good; the largest entry decides, so that maps repeat.
    signs = directions[:count].gather(1, directions[:count].abs().argmax(1, keepdim=True)).sign()
    places = torch.zeros(len(rows), 2, dtype=torch.float64)
    places[:, :count] = rows @ (directions[:count] * signs).mT
    places /= places.abs().max().clamp_min(1e-12)
    shares = sizes.square() / sizes.square().sum().clamp_min(1e-12)
    return {
        "x": [round(value, 4) for value in places[:, 0].tolist()],
        "y": [round(value, 4) for value in places[:, 1].tolist()],
        "explained": shares[:2].tolist(),
    }
