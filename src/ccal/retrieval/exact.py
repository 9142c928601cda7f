"""Exact search: one matrix product, the largest entries, and their cosines again in float64.

A matrix product rounds, and not the same way at every position: equal vectors could get different
cosines. So it only chooses candidates, a few more than are wanted; those that are returned are
ordered by cosines in float64, which depend on nothing but query and vector.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Floats = NDArray[np.floating]
Doubles = NDArray[np.float64]

_SPARE, _GROUP = 6, 64
_FEW = 1 << 18
"""With fewer entries than this, plain `topk` is fastest."""
_BLOCK, _CACHED, _ROWS = 1 << 25, 1 << 21, 64
"""Products held at once: the maximum; those that fit in a cache; the minimum of queries."""
_CHUNK = 1 << 13
"""Vectors of float16 that are converted at once, so that they stay in a cache."""
_BYTES = 1 << 19
"""Bytes of candidates' vectors that are compared at once in float64."""


@dataclass
class Candidates:
    """Candidates of q queries, the best first: cosines (q, m) float64, positions (q, m) int64.

    A cosine of -inf marks an empty entry. `more` has all candidates of single queries that have
    many, as among equal vectors, in arbitrary order.
    """

    cosines: Doubles
    positions: Ints
    more: dict[int, tuple[Doubles, Ints]] = field(default_factory=dict)

    def through(self, positions: Ints) -> Candidates:
        """The same with positions[p] for each position p."""
        more = {query: (cosines, positions[at]) for query, (cosines, at) in self.more.items()}
        return Candidates(self.cosines, positions[self.positions], more)

    @classmethod
    def nothing(cls, queries: int) -> Candidates:
        """For queries without any candidate."""
        return cls(np.empty((queries, 0)), np.empty((queries, 0), np.int64))


def nearest(
    queries: NDArray[np.float32], vectors: Floats, k: int, allowed: Bools | None = None
) -> Candidates:
    """The k best cosines of each query at least, and all that equal the k-th.

    Args:
        queries: unit rows (q, d).
        vectors: unit rows (n, d) float32 or float16.
        allowed: which of the vectors count (n,); None for all.

    >>> eye = np.eye(3, dtype=np.float32)
    >>> nearest(eye[1:2], eye, k=1).positions[0, 0]
    np.int64(1)
    """
    count = len(vectors)
    width = min(k + _SPARE, count)
    if not len(queries) or not count:
        return Candidates.nothing(len(queries))
    excluded = None if allowed is None else torch.from_numpy(np.flatnonzero(~allowed))
    blocks, more = [], {}
    whole = torch.from_numpy(vectors)
    block = max(1, _BLOCK // count)
    # Products that fit in a cache are faster, but float16 is converted anew for each block.
    if whole.dtype == torch.float32:
        block = min(block, max(_ROWS, _CACHED // count))
    # Blocks share their memory, as fresh memory costs as much as a product.
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
        fine, at = descending(fine, at)
        blocks.append((fine, at))
        if width < count:
            # Where a vector outside the candidates could be as good as the k-th, as among equal
            # vectors, all that may be are compared.
            least, last = fine[:, k - 1] - slack(queries.shape[1]), values[:, -1]
            for row in np.flatnonzero((last >= least) & (last > -np.inf)).tolist():
                at_all = (rough[row] >= least[row]).nonzero().T.numpy()
                more[start + row] = score(part[row : row + 1], vectors, at_all)[0], at_all[0]
    if len(blocks) == 1:
        return Candidates(*blocks[0], more)
    cosines, positions = map(np.concatenate, zip(*blocks, strict=True))
    return Candidates(cosines, positions, more)


def largest(scores: Tensor, m: int) -> tuple[Tensor, Tensor]:
    """The m largest entries of each row (q, n), descending, and their positions.

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
    positions = (chosen.unsqueeze(2) * _GROUP + torch.arange(_GROUP)).flatten(1)
    ends = torch.arange(groups * _GROUP, count).expand(rows, -1)
    return best.values, torch.cat((positions, ends), dim=1).gather(1, best.indices)


def score(queries: NDArray[np.float32], vectors: Floats, positions: Ints) -> Doubles:
    """Cosines (q, m) of unit queries (q, d) with unit vectors (n, d) at positions (q, m).

    Each depends on its query and its vector only.
    """
    cosines = np.empty(positions.shape)
    # In blocks that stay in the processor's cache.
    most = max(1, _BYTES // (8 * queries.shape[1]))
    step = max(1, most // max(1, positions.shape[1]))
    for start in range(0, len(queries), step):
        asked = queries[start : start + step].astype(np.float64)
        for first in range(0, positions.shape[1], most):
            some = slice(start, start + step), slice(first, first + most)
            gathered = vectors.take(positions[some], axis=0).astype(np.float64)
            # Without BLAS, einsum adds every row in the same order, whatever its position.
            np.einsum("qmd,qd->qm", gathered, asked, out=cosines[some])
    # Equal but for the order of addition counts as equal.
    return cosines.round(12, out=cosines)


def descending(cosines: Doubles, positions: Ints) -> tuple[Doubles, Ints]:
    """Both (q, m), the largest cosines of each query first.

    >>> descending(np.array([[0.1, 0.3, 0.2]]), np.array([[7, 8, 9]]))
    (array([[0.3, 0.2, 0.1]]), array([[8, 9, 7]]))
    """
    order = cosines.argsort(axis=1)[:, ::-1]
    if len(order) > 1:
        order = order + np.arange(len(order))[:, None] * order.shape[1]
    return cosines.take(order), positions.take(order)


def slack(dim: int) -> float:
    """The error of a product of unit vectors in float32 is below this, by far."""
    return 1e-6 + dim * 6e-8


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
