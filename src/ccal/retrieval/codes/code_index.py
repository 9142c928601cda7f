"""CodeIndex: search among packed codes, re-ranked by vectors if wanted."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from ccal.bounds import Options, check
from ccal.errors import InputError
from ccal.ranks import unit_rows
from ccal.retrieval.codes.binary import BinaryCodes
from ccal.retrieval.codes.hamming import FaissCodes, HammingCodes, Packed, check_packed

Array = NDArray[Any]

_CHUNK = 1 << 22
"""Numbers of candidates' vectors that are read at once for re-ranking."""
_FAISS_FROM = 10_000
"""Candidates from which faiss, if it is there, is worth its import."""


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
        self,
        codes: BinaryCodes,
        packed: Packed,
        *,
        vectors: Any = None,
        engine: Literal["auto", "numpy", "faiss"] = "auto",
    ) -> None:
        check("engine", engine, Options("auto", "numpy", "faiss"))
        packed = check_packed(packed, codes.bytes, "packed")
        if vectors is not None and (np.ndim(vectors) != 2 or len(vectors) != len(packed)):
            raise InputError(
                f"vectors must be those of the {len(packed)} candidates, ({len(packed)}, d), "
                f"got shape {tuple(np.shape(vectors))}."
            )
        self.codes, self._vectors = codes, vectors
        if engine == "auto":
            large = len(packed) >= _FAISS_FROM and find_spec("faiss") is not None
            engine = "faiss" if large else "numpy"
        self.engine = engine
        self._held = FaissCodes(packed) if engine == "faiss" else HammingCodes(packed)

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
        if np.shape(vectors) != (len(rows), np.shape(self._vectors)[1]):
            raise InputError(
                f"vectors must be those of the {len(rows)} queries, of shape "
                f"{(len(rows), np.shape(self._vectors)[1])}, got {tuple(np.shape(vectors))}."
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


def _tensor(values: Any) -> torch.Tensor:
    """Rows as a tensor of their own; memory-mapped ones are read."""
    if isinstance(values, torch.Tensor):
        return values.detach().cpu()
    return torch.from_numpy(np.array(values))
