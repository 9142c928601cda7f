"""From candidates of several parts to hits in their order."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from ccal.retrieval.embedded.exact import Found
from ccal.retrieval.hits import Facts
from ccal.retrieval.items import Hit

__all__ = ["ranked"]


def ranked(
    parts: list[Found], queries: int, k: int, facts: Callable[[Iterable[int]], dict[int, Facts]]
) -> list[list[Hit]]:
    """The k best of each query, equal cosines in the order of ids.

    `parts` have row numbers as places, `facts` knows what is in a row.
    """
    kept = _kept(parts or [Found.nothing(queries)], k)
    known = facts({row for _, rows in kept for row in rows})
    return [_hits(cosines, rows, k, known) for cosines, rows in kept]


def _kept(parts: list[Found], k: int) -> list[tuple[list[float], list[int]]]:
    """Cosines, falling, and rows of each query: the k best, and all that equal the k-th."""
    cosines = np.concatenate([part.cosines for part in parts], axis=1)
    rows = np.concatenate([part.places for part in parts], axis=1)
    order = np.argsort(-cosines, axis=1, kind="stable")
    cosines = np.take_along_axis(cosines, order, axis=1)
    rows = np.take_along_axis(rows, order, axis=1)
    stay = cosines > -np.inf
    if cosines.shape[1] > k:
        stay &= cosines >= cosines[:, k - 1 : k]
    # What stays is the beginning of a row.
    ends = stay.sum(axis=1).tolist()
    kept = [
        (c[:end], r[:end]) for c, r, end in zip(cosines.tolist(), rows.tolist(), ends, strict=True)
    ]
    for query in {query for part in parts for query in part.more}:
        mine = [part.more.get(query, (part.cosines[query], part.places[query])) for part in parts]
        cosine, row = (np.concatenate(values)[None] for values in zip(*mine, strict=True))
        (kept[query],) = _kept([Found(cosine, row)], k)
    return kept


def _hits(cosines: list[float], rows: list[int], k: int, known: dict[int, Facts]) -> list[Hit]:
    found = [(cosine, known[row]) for cosine, row in zip(cosines, rows, strict=True)]
    if len(set(cosines)) < len(cosines):
        found.sort(key=lambda entry: (-entry[0], entry[1][0]))
    return [
        Hit(id, cosine, modality, metadata, file)
        for cosine, (id, modality, metadata, file) in found[:k]
    ]
