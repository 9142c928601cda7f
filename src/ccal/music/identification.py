"""What searches by recordings and by pages share: votes for tunes, and alignments with them."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Alignment:
    """A tune, its score, and for `snippets` of the query the rows of their `positions`."""

    tune: int
    score: float
    snippets: NDArray[np.int64]
    positions: NDArray[np.int64]


def votes(snippets: Floats, vectors: Floats, bounds: NDArray[np.int64]) -> Floats:
    """For each of some snippets (q, dim) and each tune, the best similarity (q, tunes).

    Tune i has the `vectors` (n, dim) from bounds[i] to before bounds[i + 1].

    >>> vectors = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]], dtype=np.float32)
    >>> votes(vectors[:2], vectors, np.array([0, 2, 3])).round(1).tolist()
    [[1.0, 0.6000000238418579], [1.0, 0.800000011920929]]
    """
    queries = torch.from_numpy(np.ascontiguousarray(snippets.T))
    # The similarities of one tune stay in the cache; those of all would have to be read again.
    tunes = torch.from_numpy(vectors).split(np.diff(bounds).tolist())
    return torch.stack([(tune @ queries).amax(0) for tune in tunes], dim=1).numpy()
