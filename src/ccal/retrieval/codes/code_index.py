"""CodeIndex: packed codes, searched by Hamming distance, and re-ranked by vectors if wanted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccal.bounds import Options, Whole, check
from ccal.errors import InputError
from ccal.optional import require
from ccal.ranks import unit_rows

if TYPE_CHECKING:
    from ccal.retrieval.codes.binary import BinaryCodes

Packed = NDArray[np.uint8]
"""Codes (n, bytes), eight bits a byte, the first bit the highest."""
Words = NDArray[np.uint64]
Neighbours = tuple[NDArray[np.int64], NDArray[np.int64]]
Engine = Literal["auto", "numpy", "faiss"]

_BLOCK = 1 << 14
"""Candidates compared at once, so that intermediate results stay in the cache."""
_CHUNK = 1 << 22
"""Numbers of candidates' vectors that are read at once for re-ranking."""
_FAISS_FROM = 10_000
"""Candidates from which faiss, if it is there, is worth its import."""


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


class HammingCodes:
    """Candidates (n, bytes), searched exactly by NumPy or faiss.

    By NumPy, ties go to the earlier row. faiss is faster with very many codes; of those that tie at
    the k-th distance it may find others than the earliest. "auto" takes it for 10,000 and more.

    >>> codes = HammingCodes(np.array([[0b1111], [0b0001], [0b0000]], dtype=np.uint8))
    >>> rows, distances = codes.nearest(np.array([[0b0011]], dtype=np.uint8), 2)
    >>> rows, distances
    (array([[1, 0]]), array([[1, 2]]))
    """

    def __init__(self, packed: Packed, engine: Engine = "auto") -> None:
        check("engine", engine, Options("auto", "numpy", "faiss"))
        packed = check_packed(packed, None, "packed")
        self._count, self._width = packed.shape
        if engine == "auto":
            large = len(packed) >= _FAISS_FROM and find_spec("faiss") is not None
            engine = "faiss" if large else "numpy"
        self.engine = engine
        if engine == "faiss":
            faiss = require("faiss", package="faiss-cpu", purpose="Searching codes by faiss")
            self._index: Any = faiss.IndexBinaryFlat(8 * self._width)
            self._index.add(np.ascontiguousarray(packed))
        else:
            self._words = np.ascontiguousarray(_words(packed).T)

    def __len__(self) -> int:
        return int(self._count)

    def nearest(self, queries: Packed, k: int) -> Neighbours:
        """Rows and distances (q, min(k, n)) of the k nearest of each query, the nearest first."""
        queries = check_packed(queries, self._width, "queries")
        check("k", k, Whole(at_least=1))
        k = min(k, len(self))
        rows = np.empty((len(queries), k), dtype=np.int64)
        distances = np.empty((len(queries), k), dtype=np.int64)
        if not rows.size:
            return rows, distances
        if self.engine == "faiss":
            distances, rows = self._index.search(np.ascontiguousarray(queries), k)
            # faiss returns rows of equal distance in arbitrary order.
            order = np.lexsort((rows, distances), axis=1)
            rows, distances = (np.take_along_axis(a, order, axis=1) for a in (rows, distances))
            return rows, distances.astype(np.int64)
        for number, query in enumerate(_words(queries)):
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
                # The k smallest, in order; the earlier of equals first.
                most = np.partition(best, k - 1)[k - 1] if len(best) > k else best.max()
                keep = np.flatnonzero(best <= most)
                keep = keep[np.argsort(best[keep], kind="stable")[:k]]
                rows, best = rows[keep], best[keep]
        return rows, best.astype(np.int64)


@dataclass(frozen=True)
class CodeHits:
    """The k nearest candidates of each query, the best first.

    `rows` (q, k) count candidates from 0, `distances` (q, k) are the bits that differ, `cosines`
    (q, k) are those of the vectors if these ranked, else None.
    """

    rows: NDArray[np.int64]
    distances: NDArray[np.int64]
    cosines: NDArray[np.float32] | None = None


class CodeIndex:
    """Candidates of one modality as codes, searched exactly by Hamming distance.

    Args:
        codes: what made the candidates' codes, and makes those of the queries.
        packed: candidates (n, bytes), by `codes.encode`.
        vectors: embeddings (n, d) of the candidates to re-rank with; may be memory-mapped or
            float16, as only the rows that are compared are read. Here hub correction and all
            dimensions may count again.
        engine: "numpy", "faiss", or "auto": faiss for 10,000 candidates and more if installed.

    >>> from ccal import DualEncoder
    >>> from ccal.codes import BinaryCodes
    >>> from ccal.encoders import DenseTower
    >>> model = DualEncoder(dim=8, projection="none", a=DenseTower(8, 8), b=DenseTower(8, 8))
    >>> x = torch.randn(100, 8, generator=torch.Generator().manual_seed(0))
    >>> codes = BinaryCodes.fit(model, x, x, bits=32)
    >>> index = CodeIndex(codes, codes.encode("a", x), vectors=x)
    >>> queries = codes.encode("b", x[:2])
    >>> index.search(queries, k=1, rerank=10, vectors=x[:2]).rows.tolist()
    [[0], [1]]
    """

    def __init__(
        self, codes: BinaryCodes, packed: Packed, *, vectors: Any = None, engine: Engine = "auto"
    ) -> None:
        packed = check_packed(packed, codes.bytes, "packed")
        if vectors is not None and (np.ndim(vectors) != 2 or len(vectors) != len(packed)):
            raise InputError(
                f"vectors must be those of the {len(packed)} candidates, ({len(packed)}, d), "
                f"got shape {tuple(np.shape(vectors))}."
            )
        self.codes, self._vectors = codes, vectors
        self._held = HammingCodes(packed, engine)
        self.engine = self._held.engine

    def __len__(self) -> int:
        return len(self._held)

    def search(
        self, queries: Packed, *, k: int = 10, rerank: int = 0, vectors: Any = None
    ) -> CodeHits:
        """The k nearest candidates of codes (q, bytes).

        With `rerank`, that many candidates are found by their codes and re-ranked by the cosine
        of their vectors with the queries' `vectors` (q, d).
        """
        if rerank == 0:
            if vectors is not None:
                raise InputError("vectors are for re-ranking; give rerank=100, or leave them out.")
            return CodeHits(*self._held.nearest(queries, k))
        if self._vectors is None or vectors is None:
            missing = "the index" if self._vectors is None else "the queries"
            raise InputError(f"rerank={rerank} compares vectors, and {missing} came without any.")
        if not 1 <= k <= rerank:
            raise InputError(f"k must lie between 1 and rerank ({rerank}), got {k}.")
        rows, distances = self._held.nearest(queries, rerank)
        expected = (len(rows), np.shape(self._vectors)[1])
        if np.shape(vectors) != expected:
            raise InputError(
                f"vectors must be those of the {len(rows)} queries, of shape {expected}, "
                f"got {tuple(np.shape(vectors))}."
            )
        cosines = self._cosines(vectors, rows)
        # Stable: equal cosines stay in the order of the codes.
        order = np.argsort(-cosines, axis=1, kind="stable")[:, :k]
        rows, distances = (np.take_along_axis(a, order, axis=1) for a in (rows, distances))
        return CodeHits(rows, distances, np.take_along_axis(cosines, order, axis=1))

    def _cosines(self, vectors: Any, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Cosines (q, r) of queries (q, d) with their candidates' rows (q, r)."""
        queries = unit_rows(_tensor(vectors), "vectors").float()
        cosines = np.empty(rows.shape, dtype=np.float32)
        step = max(1, _CHUNK // max(1, rows.shape[1] * queries.shape[1]))
        for start in range(0, len(rows), step):
            near = rows[start : start + step]
            flat = _tensor(self._vectors[near.ravel()]).float()
            candidates = flat.view(*near.shape, queries.shape[1])
            lengths = torch.linalg.vector_norm(candidates, dim=2)
            found = (candidates @ queries[start : start + step, :, None]).squeeze(2)
            cosines[start : start + step] = found / torch.where(lengths > 0, lengths, 1)
        if not np.isfinite(cosines).all():
            raise InputError("The index's vectors have NaN or infinite values.")
        return cosines


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


def _tensor(values: Any) -> torch.Tensor:
    """Rows as a tensor of their own; memory-mapped ones are read."""
    if isinstance(values, torch.Tensor):
        return values.detach().cpu()
    return torch.from_numpy(np.array(values))
