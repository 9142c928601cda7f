"""Approximate search in a large segment: faiss looks into the cells that are nearest.

Only candidates come from here; their cosines are computed exactly, like all others.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ccal.optional import require
from ccal.retrieval.embedded.exact import largest
from ccal.retrieval.home import Vectors

__all__ = ["Approximate", "build", "is_available"]

RECALL = 0.99
"""Share of the ten nearest that must be found when an index is built, by its own items."""

_SAMPLE = 200


@cache
def is_available() -> bool:
    """Whether faiss is installed."""
    return find_spec("faiss") is not None


def build(vectors: NDArray[np.floating]) -> bytes:
    """A faiss index of unit vectors (n, d) in cells, as the content of a file.

    As many cells are looked into as the wanted recall takes, which depends on the data: measured
    for points halfway between items, which are as far from any item as a query is.
    """
    faiss = _faiss()
    count, dim = vectors.shape
    rows = np.ascontiguousarray(vectors, np.float32)
    cells = max(1, min(int(4 * count**0.5), count // 40))
    index = faiss.IndexIVFScalarQuantizer(
        faiss.IndexFlatIP(dim),
        dim,
        cells,
        faiss.ScalarQuantizer.QT_fp16,
        faiss.METRIC_INNER_PRODUCT,
    )
    index.cp.spherical = True
    # More points would move the cells little; how well they work is measured below.
    index.cp.max_points_per_centroid = 64
    index.train(rows)
    index.add(rows)
    rng = np.random.default_rng(0)
    ends = rng.integers(count, size=(2, min(_SAMPLE, count)))
    queries = torch.from_numpy(rows[ends[0]] + rows[ends[1]])
    _, nearest = largest(queries @ torch.from_numpy(rows).T, min(10, count))
    index.nprobe = 1
    while index.nprobe < cells and _recall(index, queries.numpy(), nearest.numpy()) < RECALL:
        index.nprobe = min(2 * index.nprobe, cells)
    return bytes(faiss.serialize_index(index))


class Approximate:
    """The content that `build` made, ready to be asked."""

    def __init__(self, content: bytes) -> None:
        self._index = _faiss().deserialize_index(np.frombuffer(content, np.uint8))

    def candidates(
        self, queries: Vectors, k: int, allowed: NDArray[np.bool_] | None
    ) -> NDArray[np.int64]:
        """Positions (q, m) of near vectors for queries (q, d); -1 where there are no more."""
        # faiss compares vectors of float16: a few more, as the last may come in another order.
        count = min(k + max(2, k // 8), self._index.ntotal)
        parameters = None
        if allowed is not None:
            faiss = _faiss()
            bits = np.packbits(allowed, bitorder="little")
            selector = faiss.IDSelectorBitmap(bits)
            parameters = faiss.SearchParametersIVF(nprobe=self._index.nprobe, sel=selector)
        _, positions = self._index.search(queries, count, params=parameters)
        found: NDArray[np.int64] = positions
        return found


def _recall(index: Any, queries: NDArray[np.float32], nearest: NDArray[np.int64]) -> float:
    _, found = index.search(queries, nearest.shape[1])
    return float(np.mean([np.isin(n, f).mean() for n, f in zip(nearest, found, strict=True)]))


def _faiss() -> Any:
    return require("faiss", extra="ann", purpose="Approximate search")
