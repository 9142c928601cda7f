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

from ccal.retrieval.embedded.scoring import falling, score

__all__ = ["Found", "largest", "nearest"]

_SPARE, _GROUP = 6, 64
_FEW = 1 << 18
"""Entries that `topk` is fastest on as they are."""
_BLOCK, _CACHED, _ROWS = 1 << 25, 1 << 21, 64
"""Products held at once: at most; as fit in a cache, but those of some queries at least."""
_CHUNK = 1 << 13
"""Vectors of float16 that are converted at once, so that they stay in a cache."""


@dataclass
class Found:
    """Candidates of q queries, the best first: cosines (q, m) float64, their places (q, m) int64.

    A cosine of -inf says that there is nothing. `more` has all candidates of single queries that
    have many, as those among equal vectors do, in no order.
    """

    cosines: NDArray[np.float64]
    places: NDArray[np.int64]
    more: dict[int, tuple[NDArray[np.float64], NDArray[np.int64]]] = field(default_factory=dict)

    def through(self, positions: NDArray[np.int64]) -> Found:
        """The same with positions[place] for each place."""
        more = {query: (cosines, positions[at]) for query, (cosines, at) in self.more.items()}
        return Found(self.cosines, positions[self.places], more)

    @classmethod
    def nothing(cls, queries: int) -> Found:
        """For queries that nothing was found for."""
        return cls(np.empty((queries, 0)), np.empty((queries, 0), np.int64))


def nearest(
    queries: NDArray[np.float32],
    vectors: NDArray[np.floating],
    k: int,
    allowed: NDArray[np.bool_] | None = None,
) -> Found:
    """The k best cosines of each query at least, and all that equal the k-th.

    Args:
        queries: unit rows (q, d).
        vectors: unit rows (n, d) float32 or float16.
        allowed: which of the vectors count (n,); None for all.

    >>> eye = np.eye(3, dtype=np.float32)
    >>> nearest(eye[1:2], eye, k=1).places[0, 0]
    np.int64(1)
    """
    count = len(vectors)
    width = min(k + _SPARE, count)
    if not len(queries) or not count:
        return Found.nothing(len(queries))
    excluded = None if allowed is None else torch.from_numpy(np.flatnonzero(~allowed))
    blocks = []
    more = {}
    whole = torch.from_numpy(vectors)
    block = _block(whole)
    # Fresh memory costs as much as a product, so that blocks share it.
    room = torch.empty(block, count) if len(queries) > block else None
    for start in range(0, len(queries), block):
        part = queries[start : start + block]
        rough = _products(torch.from_numpy(part), whole, room)
        if excluded is not None and len(excluded):
            rough.index_fill_(1, excluded, -torch.inf)
        values, at = (found.numpy() for found in largest(rough, width))
        fine = score(part, vectors, at)
        if excluded is not None:
            fine[values == -np.inf] = -np.inf
        fine, at = falling(fine, at)
        blocks.append((fine, at))
        if width < count:
            kth = fine[:, k - 1]
            for row in _unsure(values[:, -1], kth, queries.shape[1]):
                at_all = _above(rough[row], kth[row], queries.shape[1])
                more[start + row] = score(part[row : row + 1], vectors, at_all)[0], at_all[0]
    if len(blocks) == 1:
        return Found(*blocks[0], more)
    cosines, places = zip(*blocks, strict=True)
    return Found(np.concatenate(cosines), np.concatenate(places), more)


def largest(scores: Tensor, m: int) -> tuple[Tensor, Tensor]:
    """The m largest entries of each row (q, n), falling, and their positions.

    They lie in the m groups whose largest entries are largest; finding those first takes a fraction
    of the time of `topk` over all.

    >>> largest(torch.tensor([[3.0, 1.0, 2.0]]), 1)
    (tensor([[3.]]), tensor([[0]]))
    """
    rows, count = scores.shape
    groups = count // _GROUP
    if scores.numel() < _FEW or groups < 4 * m:
        best = scores.topk(m, dim=1)
        return best.values, best.indices
    body = scores[:, : groups * _GROUP].unflatten(1, (groups, _GROUP))
    chosen = body.amax(2).topk(m, dim=1, sorted=False).indices
    inside = body.gather(1, chosen.unsqueeze(2).expand(-1, -1, _GROUP)).flatten(1)
    rest = scores[:, groups * _GROUP :]
    best = torch.cat((inside, rest), dim=1).topk(m, dim=1)
    places = (chosen.unsqueeze(2) * _GROUP + torch.arange(_GROUP)).flatten(1)
    ends = torch.arange(groups * _GROUP, count).expand(rows, -1)
    return best.values, torch.cat((places, ends), dim=1).gather(1, best.indices)


def _unsure(last: NDArray[np.float32], kth: NDArray[np.float64], dim: int) -> list[int]:
    """Queries for which something outside the candidates could be as good as the k-th of them.

    Equal vectors are an example. `last` is the smallest product of a candidate.
    """
    unsure = last >= kth - _slack(dim)
    if not unsure.any():
        return []
    found: list[int] = np.flatnonzero(unsure & (last > -np.inf)).tolist()
    return found


def _above(products: Tensor, cosine: float, dim: int) -> NDArray[np.int64]:
    """Positions (1, m) of all that may reach a cosine, by their products (n,)."""
    found: NDArray[np.int64] = (products >= cosine - _slack(dim)).nonzero().T.numpy()
    return found


def _slack(dim: int) -> float:
    """The error of a product of unit vectors in float32 is below this, by far."""
    return 1e-6 + dim * 6e-8


def _block(vectors: Tensor) -> int:
    """Queries whose products with all vectors are computed at once."""
    most = max(1, _BLOCK // len(vectors))
    # Vectors of float16 are converted anew for each block.
    few = max(_ROWS, _CACHED // len(vectors)) if vectors.dtype == torch.float32 else most
    return min(few, most)


def _products(queries: Tensor, vectors: Tensor, out: Tensor | None) -> Tensor:
    """Products (q, n) float32, in the first rows of `out` if given; see `_CHUNK`."""
    if out is not None:
        out = out[: len(queries)]
    if vectors.dtype == torch.float32:
        return torch.mm(queries, vectors.T, out=out)
    out = torch.empty(len(queries), len(vectors)) if out is None else out
    room = torch.empty(min(_CHUNK, len(vectors)), vectors.shape[1])
    for start in range(0, len(vectors), _CHUNK):
        some = vectors[start : start + _CHUNK]
        chunk = room[: len(some)].copy_(some)
        torch.mm(queries, chunk.T, out=out[:, start : start + _CHUNK])
    return out
