"""A part of what a search sees: vectors of one modality, and what is known of their items."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ccal.retrieval.embedded.approximate import Approximate
from ccal.retrieval.embedded.codes import CodesFile
from ccal.retrieval.embedded.exact import Found, nearest
from ccal.retrieval.embedded.records import Records
from ccal.retrieval.embedded.scoring import falling, score
from ccal.retrieval.home import Vectors

__all__ = ["Part"]

# Filters that leave less than this share are searched exactly, on what they leave.
_SELECTIVE = 0.25


@dataclass
class Part:
    """Vectors (n, d) with their row numbers (n,), rising, and their records.

    `alive` (n,) says which are still there, None that all are.
    """

    rows: NDArray[np.int64]
    vectors: NDArray[np.floating]
    records: Records
    alive: NDArray[np.bool_] | None = None
    approximate: Approximate | CodesFile | None = None

    def nearest(
        self, queries: Vectors, k: int, matching: NDArray[np.int64] | None, exact: bool
    ) -> Found:
        """Cosines and positions of candidates; of those among `matching` rows (m,) if given."""
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
                inner = nearest(queries, self.vectors[chosen], k)
                return inner.through(chosen)
        found: Found | None = None
        if self.approximate is not None and not exact:
            found = self._approximate(self.approximate, queries, k, allowed)
        return nearest(queries, self.vectors, k, allowed) if found is None else found

    def _approximate(
        self,
        index: Approximate | CodesFile,
        queries: Vectors,
        k: int,
        allowed: NDArray[np.bool_] | None,
    ) -> Found | None:
        """None if there are not enough candidates for one of the queries."""
        at = index.candidates(queries, k, allowed)
        missing = at < 0
        if not missing.any():
            return Found(*falling(score(queries, self.vectors, at), at))
        wanted = min(k, len(self.rows) if allowed is None else int(allowed.sum()))
        if (missing.sum(1) > at.shape[1] - wanted).any():
            return None
        at = at.clip(0)
        cosines = score(queries, self.vectors, at)
        cosines[missing] = -np.inf
        return Found(*falling(cosines, at))
