"""Exact search: one matrix product, the largest entries, and their cosines again in float64.

A matrix product rounds, and not the same way in every place: equal vectors could get different
cosines. So it only chooses candidates, a few more than are wanted; those that are returned are
ordered by cosines in float64, which depend on nothing but query and vector.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["Found", "largest", "nearest", "score"]

_SPARE, _GROUP = 16, 64
_BLOCK = 1 << 25
_CHUNK = 1 << 15


@dataclass
class Found:
    """Candidates of q queries, in no order: cosines (q, m) float64 and where they are (q, m) int64.

    A cosine of -inf says that there is nothing. `more` has all candidates of single queries that
    have many, as those among equal vectors do.
    """

    cosines: NDArray[np.float64]
    places: NDArray[np.int64]
    more: dict[int, tuple[NDArray[np.float64], NDArray[np.int64]]] = field(default_factory=dict)

    def through(self, rows: NDArray[np.int64]) -> Found:
        """The same with rows[place] for each place."""
        more = {query: (cosines, rows[at]) for query, (cosines, at) in self.more.items()}
        return Found(self.cosines, rows[self.places], more)

    @classmethod
    def nothing(cls, queries: int) -> Found:
        """For queries that nothing was found for."""
        return cls(np.empty((queries, 0)), np.empty((queries, 0), np.int64))


def nearest(
    queries: Tensor, vectors: Tensor, k: int, allowed: NDArray[np.bool_] | None = None
) -> Found:
    """The k best cosines of each query at least, and all that equal the k-th.

    Args:
        queries: unit rows (q, d) float32.
        vectors: unit rows (n, d) float32 or float16.
        allowed: which of the vectors count (n,); None for all.

    >>> found = nearest(torch.eye(3)[:1], torch.eye(3), k=1)
    >>> found.places[0, found.cosines[0].argmax()]
    np.int64(0)
    """
    count, dim = vectors.shape
    width = min(k + _SPARE, count)
    if not len(queries) or not count:
        return Found.nothing(len(queries))
    # The error of a product of unit vectors in float32 is below this, by far.
    slack = 1e-6 + dim * 6e-8
    excluded = None if allowed is None else torch.from_numpy(np.flatnonzero(~allowed))
    cosines = torch.empty(len(queries), width, dtype=torch.float64)
    places = torch.empty(len(queries), width, dtype=torch.int64)
    more = {}
    block = max(1, _BLOCK // max(count, width * dim))
    for start in range(0, len(queries), block):
        part = queries[start : start + block]
        rough = _products(part, vectors)
        if excluded is not None and len(excluded):
            rough.index_fill_(1, excluded, -torch.inf)
        values, at = largest(rough, width)
        fine = score(part, vectors, at)
        fine[values == -torch.inf] = -torch.inf
        cosines[start : start + block], places[start : start + block] = fine, at
        if width < count:
            kth, last = fine.topk(min(k, width)).values[:, -1], values.amin(1)
            # Something outside the candidates could be as good, equal vectors for one: look at all.
            unsure = (last > -torch.inf) & (last + slack >= kth)
            for row in unsure.nonzero().flatten().tolist():
                all_at = (rough[row] >= kth[row] - slack).nonzero().squeeze(1)
                pieces = [
                    score(part[row : row + 1], vectors, a[None]) for a in all_at.split(_CHUNK)
                ]
                more[start + row] = torch.cat(pieces, dim=1)[0].numpy(), all_at.numpy()
    return Found(cosines.numpy(), places.numpy(), more)


def largest(scores: Tensor, m: int) -> tuple[Tensor, Tensor]:
    """The m largest entries of each row (q, n) and their positions, in no order.

    They lie in the m groups whose largest entries are largest; finding those first takes a fraction
    of the time of `topk` over all.

    >>> largest(torch.tensor([[3.0, 1.0, 2.0]]), 1)
    (tensor([[3.]]), tensor([[0]]))
    """
    rows, count = scores.shape
    groups = count // _GROUP
    if groups < 16 * m:
        best = scores.topk(m, dim=1, sorted=False)
        return best.values, best.indices
    body = scores[:, : groups * _GROUP].unflatten(1, (groups, _GROUP))
    chosen = body.amax(2).topk(m, dim=1, sorted=False).indices
    inside = body.gather(1, chosen.unsqueeze(2).expand(-1, -1, _GROUP)).flatten(1)
    rest = scores[:, groups * _GROUP :]
    best = torch.cat((inside, rest), dim=1).topk(m, dim=1, sorted=False)
    places = (chosen.unsqueeze(2) * _GROUP + torch.arange(_GROUP)).flatten(1)
    ends = torch.arange(groups * _GROUP, count).expand(rows, -1)
    return best.values, torch.cat((places, ends), dim=1).gather(1, best.indices)


def score(queries: Tensor, vectors: Tensor, positions: Tensor) -> Tensor:
    """Cosines (q, m) float64 of queries (q, d) with vectors at positions (q, m)."""
    cosines = torch.empty(positions.shape, dtype=torch.float64)
    # So few at a time that what is gathered stays in the processor's cache.
    for start in range(0, len(queries), _GROUP):
        some = slice(start, start + _GROUP)
        gathered = vectors[positions[some]].double()
        # A sum along each row, not a matrix product: it adds in the same order wherever it stands.
        torch.sum(gathered.mul_(queries[some].double().unsqueeze(1)), 2, out=cosines[some])
    # What is equal but for the order of adding is equal.
    return cosines.round_(decimals=12)


def _products(queries: Tensor, vectors: Tensor) -> Tensor:
    """Products (q, n) float32, of float16 vectors a chunk at a time."""
    if vectors.dtype == torch.float32:
        return queries @ vectors.T
    products = torch.empty(len(queries), len(vectors))
    for start in range(0, len(vectors), _CHUNK):
        chunk = vectors[start : start + _CHUNK].float()
        torch.mm(queries, chunk.T, out=products[:, start : start + _CHUNK])
    return products
