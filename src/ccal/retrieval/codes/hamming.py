"""Bits packed as bytes, and exact search for the codes that differ in the fewest bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ccal.bounds import Whole, check
from ccal.errors import InputError
from ccal.optional import require

Packed = NDArray[np.uint8]
"""Codes (n, bytes), eight bits a byte, the first bit the highest."""


def check_bits(bits: int) -> None:
    """Refuse codes that are not whole bytes."""
    if bits < 8 or bits % 8:
        raise InputError(f"bits must be a positive multiple of 8, as codes are bytes, got {bits}.")


def pack(bits: Tensor | NDArray[np.bool_]) -> Packed:
    """Bits (n, b), as booleans, into bytes (n, b / 8); b must be a multiple of 8.

    >>> pack(np.array([[True, False, False, False, False, False, True, True]]))
    array([[131]], dtype=uint8)
    """
    array = bits.cpu().numpy() if isinstance(bits, Tensor) else np.asarray(bits)
    if array.ndim != 2 or array.dtype != np.bool_:
        raise InputError(
            f"bits must be booleans of shape (n, bits), got {array.dtype} {array.shape}."
        )
    check_bits(array.shape[1])
    return np.packbits(array, axis=1)


def unpack(packed: Packed) -> NDArray[np.bool_]:
    """Bytes (n, b) into bits (n, 8 b).

    >>> unpack(np.array([[131]], dtype=np.uint8)).astype(int)
    array([[1, 0, 0, 0, 0, 0, 1, 1]])
    """
    return np.unpackbits(check_packed(packed, None, "packed"), axis=1).astype(np.bool_)


def check_packed(packed: Any, width: int | None, name: str) -> Packed:
    """Codes as an array (n, width); a single code (width,) and other types are refused."""
    array = np.asarray(packed.cpu() if isinstance(packed, Tensor) else packed)
    expected = "bytes" if width is None else width
    wrong = array.ndim != 2 or array.shape[1] != (width or array.shape[1]) or not array.shape[1]
    if array.dtype != np.uint8 or wrong:
        raise InputError(
            f"{name} must be packed codes, uint8 of shape (n, {expected}), got {array.dtype} "
            f"{array.shape}; BinaryCodes.encode makes them."
        )
    return array


_BLOCK = 1 << 14
"""Candidates compared at once, so that intermediate results stay in the cache."""

Words = NDArray[np.uint64]
Neighbours = tuple[NDArray[np.int64], NDArray[np.int64]]


class HammingCodes:
    """Candidates (n, bytes), searched by NumPy; ties go to the earlier row.

    >>> codes = HammingCodes(np.array([[0b1111], [0b0001], [0b0000]], dtype=np.uint8))
    >>> rows, distances = codes.nearest(np.array([[0b0011]], dtype=np.uint8), 2)
    >>> rows, distances
    (array([[1, 0]]), array([[1, 2]]))
    """

    def __init__(self, packed: Packed) -> None:
        packed = check_packed(packed, None, "packed")
        self.width = packed.shape[1]
        self._words = np.ascontiguousarray(_words(packed).T)

    def __len__(self) -> int:
        return int(self._words.shape[1])

    def nearest(self, queries: Packed, k: int) -> Neighbours:
        """Rows and distances (q, min(k, n)) of the k nearest of each query, the nearest first."""
        asked = _words(check_packed(queries, self.width, "queries"))
        k = _count(k, len(self))
        rows = np.empty((len(asked), k), dtype=np.int64)
        distances = np.empty((len(asked), k), dtype=np.int64)
        for number, query in enumerate(asked if k else ()):
            rows[number], distances[number] = self._nearest(query, k)
        return rows, distances

    def _nearest(self, query: Words, k: int) -> Neighbours:
        """Rows and distances (k,) for the words of one query."""
        rows = np.empty(0, dtype=np.int64)
        best = np.empty(0, dtype=np.uint16)
        for start in range(0, len(self), _BLOCK):
            block = _distances(query[None], self._words[:, start : start + _BLOCK])[0]
            # Once k are found, later rows must be nearer than the last of them: ties go to the
            # earlier row, and most rows are out after one comparison.
            near = np.flatnonzero(block < best[-1]) if len(best) == k else np.arange(len(block))
            if len(near):
                rows = np.concatenate((rows, near + start))
                best = np.concatenate((best, block[near]))
                keep = _smallest(best, min(k, len(best)))
                rows, best = rows[keep], best[keep]
        return rows, best.astype(np.int64)


class FaissCodes:
    """Candidates (n, bytes), searched by faiss, which is faster with very many codes.

    Of codes that tie at the k-th distance, faiss may find others than the earliest rows.
    """

    def __init__(self, packed: Packed) -> None:
        faiss = require("faiss", extra="ann", purpose="Searching codes by faiss")
        packed = check_packed(packed, None, "packed")
        self.width = packed.shape[1]
        self._index: Any = faiss.IndexBinaryFlat(8 * self.width)
        self._index.add(np.ascontiguousarray(packed))

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def nearest(self, queries: Packed, k: int) -> Neighbours:
        """Rows and distances (q, min(k, n)) of the k nearest of each query, the nearest first."""
        queries = check_packed(queries, self.width, "queries")
        k = _count(k, len(self))
        if not k or not len(queries):
            return np.empty((len(queries), k), np.int64), np.empty((len(queries), k), np.int64)
        distances, rows = self._index.search(np.ascontiguousarray(queries), k)
        # faiss returns rows of equal distance in arbitrary order.
        order = np.lexsort((rows, distances), axis=1)
        rows, distances = (np.take_along_axis(a, order, axis=1) for a in (rows, distances))
        return rows, distances.astype(np.int64)


def hamming_distances(queries: Packed, candidates: Packed) -> NDArray[np.uint16]:
    """Bits (q, n) in which codes (q, bytes) and (n, bytes) differ.

    >>> codes = np.array([[0b1111], [0b0001]], dtype=np.uint8)
    >>> hamming_distances(codes, codes)
    array([[0, 3],
           [3, 0]], dtype=uint16)
    """
    candidates = check_packed(candidates, None, "candidates")
    queries = check_packed(queries, candidates.shape[1], "queries")
    return _distances(_words(queries), np.ascontiguousarray(_words(candidates).T))


def _words(packed: Packed) -> Words:
    """Codes as words of 8 bytes (n, words), the last one filled up with zeros."""
    missing = -packed.shape[1] % 8
    filled = np.pad(packed, ((0, 0), (0, missing))) if missing else packed
    return np.ascontiguousarray(filled).view(np.uint64)


def _distances(queries: Words, columns: Words) -> NDArray[np.uint16]:
    """Distances (q, n) between words (q, w) and (w, n)."""
    total = np.zeros((len(queries), columns.shape[1]), dtype=np.uint16)
    for word, column in zip(queries.T, columns, strict=True):
        total += _ones(word[:, None] ^ column)
    return total


def _table_ones(words: Words) -> NDArray[np.uint8]:
    """Ones in each word, looked up 16 bits at a time."""
    ones: NDArray[np.uint8] = _TABLE[words[..., None].view(np.uint16)].sum(-1, dtype=np.uint8)
    return ones


_TABLE = np.unpackbits(np.arange(1 << 16, dtype=np.uint16).view(np.uint8)).reshape(-1, 16).sum(1)
_TABLE = _TABLE.astype(np.uint8)
# NumPy counts bits itself since 2.0.
_ones: Callable[[Words], NDArray[np.uint8]] = getattr(np, "bitwise_count", _table_ones)


def _smallest(distances: NDArray[np.uint16], k: int) -> NDArray[np.int64]:
    """Positions of the k smallest, in order; the earlier of equals first."""
    last = np.partition(distances, k - 1)[k - 1]
    near = np.flatnonzero(distances <= last)
    return near[np.argsort(distances[near], kind="stable")[:k]]


def _count(k: int, held: int) -> int:
    check("k", k, Whole(at_least=1))
    return min(k, held)
