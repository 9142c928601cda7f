"""From candidates of several parts to answers in their order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ccal.retrieval.answers import Answers
from ccal.retrieval.embedded.exact import Found
from ccal.retrieval.embedded.records import Catalogue
from ccal.retrieval.embedded.scoring import falling

__all__ = ["ranked"]


def ranked(parts: list[Found], catalogue: Catalogue, queries: int, k: int) -> Answers:
    """The k best of each query, equal cosines in the order of ids.

    `catalogue` knows what is in the places of the parts, one part after another.
    """
    found = parts[0] if len(parts) == 1 else _joined(parts, catalogue.starts, queries)
    # One more than are wanted: it may equal the last of them.
    cosines, places = found.cosines[:, : k + 1], found.places[:, : k + 1]
    falls = cosines[:, 1:] < cosines[:, :-1]
    many = {query for part in parts for query in part.more}
    if cosines.shape[1] > k and not many and falls.all():
        # Nothing is equal, so nothing but the one more can be -inf.
        return Answers(cosines[:, :k], places[:, :k], None, catalogue)
    ends = (cosines[:, :k] > -np.inf).sum(axis=1)
    tied = many.union(np.flatnonzero((~falls & (cosines[:, 1:] > -np.inf)).any(1)).tolist())
    cosines, places = cosines[:, :k].copy(), places[:, :k].copy()
    for query in tied:
        best, at = _by_id(parts, catalogue, query, k)
        cosines[query, : len(best)], places[query, : len(at)] = best, at
    return Answers(cosines, places, ends, catalogue)


def _joined(parts: list[Found], starts: list[int], queries: int) -> Found:
    """Candidates of all parts, counted through."""
    if not parts:
        return Found.nothing(queries)
    places = [part.places + start for part, start in zip(parts, starts, strict=False)]
    cosines = np.concatenate([part.cosines for part in parts], axis=1)
    return Found(*falling(cosines, np.concatenate(places, axis=1)))


def _by_id(
    parts: list[Found], catalogue: Catalogue, query: int, k: int
) -> tuple[list[float], list[int]]:
    """The k best of one query among whose candidates some are equal: their cosines and places."""
    found: list[NDArray[np.float64]] = []
    at: list[NDArray[np.int64]] = []
    for part, start in zip(parts, catalogue.starts, strict=False):
        cosines, places = part.more.get(query, (part.cosines[query], part.places[query]))
        found.append(cosines)
        at.append(places + start)
    cosines, places = np.concatenate(found), np.concatenate(at)
    least = np.partition(cosines, -k)[-k] if len(cosines) > k else -np.inf
    stay = (cosines >= least) & (cosines > -np.inf)
    best = sorted(
        (-cosine, catalogue.id(place), place)
        for cosine, place in zip(cosines[stay].tolist(), places[stay].tolist(), strict=True)
    )[:k]
    return [-cosine for cosine, _, _ in best], [place for _, _, place in best]
