"""Cosines in float64, of few candidates."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["falling", "score"]

_BYTES = 1 << 19


def score(
    queries: NDArray[np.float32], vectors: NDArray[np.floating], positions: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Cosines (q, m) of unit queries (q, d) with unit vectors (n, d) at positions (q, m).

    They depend on nothing but query and vector.
    """
    cosines = np.empty(positions.shape)
    # So few at a time that what is gathered stays in the processor's cache.
    most = max(1, _BYTES // (8 * queries.shape[1]))
    step = max(1, most // max(1, positions.shape[1]))
    for start in range(0, len(queries), step):
        asked = queries[start : start + step].astype(np.float64)
        for first in range(0, positions.shape[1], most):
            some = slice(start, start + step), slice(first, first + most)
            gathered = vectors.take(positions[some], axis=0).astype(np.float64)
            # Without BLAS, einsum adds along each row in the same order wherever it stands.
            np.einsum("qmd,qd->qm", gathered, asked, out=cosines[some])
    # What is equal but for the order of adding is equal.
    return cosines.round(12, out=cosines)


def falling(
    cosines: NDArray[np.float64], places: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Both (q, m), the largest cosines of each query first.

    >>> falling(np.array([[0.1, 0.3, 0.2]]), np.array([[7, 8, 9]]))
    (array([[0.3, 0.2, 0.1]]), array([[8, 9, 7]]))
    """
    order = cosines.argsort(axis=1)[:, ::-1]
    if len(order) > 1:
        order = order + np.arange(len(order))[:, None] * order.shape[1]
    return cosines.take(order), places.take(order)
