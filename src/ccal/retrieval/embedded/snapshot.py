"""What a search sees: the segments, the rows that are in none yet, and those removed."""

from __future__ import annotations

import warnings
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccal.retrieval.embedded.approximate import Approximate, is_available
from ccal.retrieval.embedded.exact import Found, nearest, score
from ccal.retrieval.embedded.sealing import Entry, approximate_path, entries
from ccal.retrieval.embedded.segments import BadSegmentError, Segment
from ccal.retrieval.embedded.truth import Truth
from ccal.retrieval.items import Binding

__all__ = ["Part", "Snapshot"]

# Filters that leave less than this share are searched exactly, on what they leave.
_SELECTIVE = 0.25


@dataclass
class Part:
    """Vectors (n, d) of one modality with their row numbers (n,), rising.

    `alive` (n,) says which are still there, None that all are.
    """

    rows: NDArray[np.int64]
    vectors: Tensor
    alive: NDArray[np.bool_] | None = None
    approximate: Approximate | None = None

    def nearest(
        self, queries: Tensor, k: int, matching: NDArray[np.int64] | None, exact: bool
    ) -> Found:
        """Cosines and row numbers of candidates; of those among `matching` rows (m,) if given."""
        allowed = self.alive
        if matching is not None:
            allowed = np.zeros(len(self.rows), np.bool_)
            places = np.searchsorted(self.rows, matching)
            inside = places < len(self.rows)
            places, matching = places[inside], matching[inside]
            allowed[places[self.rows[places] == matching]] = True
            if (chosen := np.flatnonzero(allowed)).size < _SELECTIVE * len(allowed):
                if not chosen.size:
                    return Found.nothing(len(queries))
                inner = nearest(queries, self.vectors[torch.from_numpy(chosen)], k)
                return inner.through(self.rows[chosen])
        found: Found | None = None
        if self.approximate is not None and not exact:
            found = self._approximate(self.approximate, queries, k, allowed)
        if found is None:
            found = nearest(queries, self.vectors, k, allowed)
        return found.through(self.rows)

    def _approximate(
        self,
        index: Approximate,
        queries: Tensor,
        k: int,
        allowed: NDArray[np.bool_] | None,
    ) -> Found | None:
        """None if cells did not hold enough for one of the queries."""
        wanted = min(k, len(self.rows) if allowed is None else int(allowed.sum()))
        at = index.candidates(queries.numpy(), min(2 * k + 16, len(self.rows)), allowed)
        if ((at >= 0).sum(1) < wanted).any():
            return None
        cosines = score(queries, self.vectors, torch.from_numpy(at.clip(0))).numpy()
        cosines[at < 0] = -np.inf
        return Found(cosines, at.clip(0))


@dataclass
class Snapshot:
    """The state after a number of changes; `damaged` are segments that the truth stood in for."""

    changes: int
    parts: dict[str, list[Part]] = field(default_factory=dict)
    damaged: list[Entry] = field(default_factory=list)
    _segments: dict[str, Part] = field(default_factory=dict)

    @classmethod
    def read(
        cls, truth: Truth, folder: Path, binding: Binding, previous: Snapshot | None
    ) -> Snapshot:
        """The state of now, inside a transaction; segments that were open before stay open."""
        snapshot = cls(int(truth.get("changes")))
        for entry in entries(truth):
            part = previous and previous._segments.get(entry.name)
            if not part:
                try:
                    segment = Segment(folder / f"{entry.name}.vectors")
                    segment.verify()
                    part = Part(segment.rows, segment.vectors)
                    part.approximate = _open_approximate(folder, entry)
                    snapshot._segments[entry.name] = part
                except BadSegmentError:
                    snapshot.damaged.append(entry)
                    span = "modality = ? AND row BETWEEN ? AND ?"
                    where = [entry.modality, entry.first, entry.last]
                    part = _from_truth(truth, binding, span, where)
            else:
                snapshot._segments[entry.name] = part
            sql = "SELECT row FROM removed WHERE modality = ? AND row BETWEEN ? AND ?"
            gone = truth.query(sql, [entry.modality, entry.first, entry.last])
            alive = ~np.isin(part.rows, np.array(gone, np.int64)) if gone else None
            part = Part(part.rows, part.vectors, alive, part.approximate)
            snapshot.parts.setdefault(entry.modality, []).append(part)
        for modality in binding.modalities:
            tail = _from_truth(
                truth, binding, "row > ? AND modality = ?", [int(truth.get("sealed")), modality]
            )
            if len(tail.rows):
                snapshot.parts.setdefault(modality, []).append(tail)
        return snapshot


def _from_truth(truth: Truth, binding: Binding, condition: str, values: list[object]) -> Part:
    rows, vectors = truth.vectors(condition, values, binding.dim, binding.dtype)
    return Part(rows, torch.from_numpy(vectors))


def _open_approximate(folder: Path, entry: Entry) -> Approximate | None:
    """The faiss index of a segment, if it has one that is whole and faiss is installed."""
    if entry.approximate is None or not is_available():
        return None
    path = approximate_path(folder, entry.name)
    try:
        content = path.read_bytes()
    except OSError:
        content = b""
    if zlib.crc32(content) != entry.approximate:
        warnings.warn(f"{path} is missing or damaged: search is exact, and slower.", stacklevel=2)
        return None
    return Approximate(content)
