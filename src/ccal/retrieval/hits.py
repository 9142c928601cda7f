"""From items with their vectors to hits in their order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ccal.retrieval.items import Hit

__all__ = ["Facts", "best", "scored"]

Facts = tuple[str, str, Mapping[str, Any], str | None]
"""What an `Item` is made of: id, modality, metadata, file."""


def scored(query: Any, facts: Sequence[Facts], vectors: Sequence[Any]) -> list[Hit]:
    """Hits of one query (d,) with their cosines in float64, as every home gives them.

    A server computes in float32, each in its own order; so its scores only choose candidates.
    """
    if not facts:
        return []
    rows = np.stack([np.asarray(vector, np.float32) for vector in vectors]).astype(np.float64)
    cosines = (rows * query.astype(np.float64)).sum(1).round(12).tolist()
    pairs = zip(facts, cosines, strict=True)
    return [Hit(id, cosine, kind, about, file) for (id, kind, about, file), cosine in pairs]


def best(hits: Iterable[Hit], k: int) -> list[Hit]:
    """The k hits of the highest cosines, equal ones in the order of their ids."""
    return sorted(hits, key=lambda hit: (-hit.score, hit.id))[:k]
