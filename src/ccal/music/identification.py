"""What searches by recordings and by pages share: votes for tunes, and alignments with them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Alignment:
    """A tune, its score, and for `snippets` of the query the rows of their `positions`."""

    tune: int
    score: float
    snippets: NDArray[np.int64]
    positions: NDArray[np.int64]


def votes(similarity: Floats, bounds: NDArray[np.int64]) -> NDArray[np.float64]:
    """For each tune the mean, over snippets, of the best similarity (q, n) among its positions.

    Tune i has the positions from bounds[i] to before bounds[i + 1].

    >>> votes(np.array([[0.0, 1.0, 0.5], [1.0, 0.0, 0.5]]), np.array([0, 2, 3])).tolist()
    [1.0, 0.5]
    """
    best = np.maximum.reduceat(similarity, bounds[:-1], axis=1)
    return np.asarray(best.mean(axis=0, dtype=np.float64))
