"""From the candidates of several shards to answers in one order."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from ccal.retrieval.answers import Answers, Facts, Stored
from ccal.retrieval.backends.folder.segments import unpack_record
from ccal.retrieval.exact import Found, descending


@dataclass(frozen=True)
class ShardRecords:
    """Records of one shard by position; `changed` has those that replace the `held` ones."""

    modality: str
    held: Sequence[bytes]
    changed: Mapping[int, bytes] = field(default_factory=dict)

    def __getitem__(self, position: int) -> bytes:
        # Most shards have no change, and skip the lookup.
        found = self.changed.get(position) if self.changed else None
        return self.held[position] if found is None else found


class Catalogue:
    """Records of several shards in one numbering, in which shard n begins at `starts[n]`.

    >>> images, texts = [b"a\\0{}"], [b'b\\0{"n": 1}\\0b.txt']
    >>> both = Catalogue([ShardRecords("image", images), ShardRecords("text", texts)])
    >>> both.id(0), both.facts(both.stored(1))
    (b'a', ('b', 'text', {'n': 1}, 'b.txt'))
    """

    def __init__(self, shards: Sequence[ShardRecords]) -> None:
        self._shards = shards
        self.starts = [0, *accumulate(len(shard.held) for shard in shards)]

    def id(self, position: int) -> bytes:
        """The id at a position; UTF-8 sorts as its text does."""
        return self.stored(position)[1].partition(b"\0")[0]

    def stored(self, position: int) -> Stored:
        """Modality and record of the item at a position."""
        number = bisect_right(self.starts, position) - 1
        shard = self._shards[number]
        return shard.modality, shard[position - self.starts[number]]

    def facts(self, stored: Stored) -> Facts:
        """The fields of an item."""
        return unpack_record(*stored)


def ranked(shards: list[Found], catalogue: Catalogue, queries: int, k: int) -> Answers:
    """The k best of each query, equal cosines in the order of ids.

    `catalogue` has the records of the shards, in the same order.
    """
    found = shards[0] if len(shards) == 1 else _joined(shards, catalogue.starts, queries)
    # One more than k: it may equal the last of them.
    cosines, positions = found.cosines[:, : k + 1], found.positions[:, : k + 1]
    falls = cosines[:, 1:] < cosines[:, :-1]
    many = {query for shard in shards for query in shard.more}
    if cosines.shape[1] > k and not many and falls.all():
        # Without ties, only the last of the k + 1 can be -inf.
        return Answers(cosines[:, :k], positions[:, :k], None, catalogue)
    ends = (cosines[:, :k] > -np.inf).sum(axis=1)
    tied = many.union(np.flatnonzero((~falls & (cosines[:, 1:] > -np.inf)).any(1)).tolist())
    cosines, positions = cosines[:, :k].copy(), positions[:, :k].copy()
    for query in tied:
        best, at = _by_id(shards, catalogue, query, k)
        cosines[query, : len(best)], positions[query, : len(at)] = best, at
    return Answers(cosines, positions, ends, catalogue)


def _joined(shards: list[Found], starts: list[int], queries: int) -> Found:
    """Candidates of all shards in one numbering."""
    if not shards:
        return Found.nothing(queries)
    positions = [shard.positions + start for shard, start in zip(shards, starts, strict=False)]
    cosines = np.concatenate([shard.cosines for shard in shards], axis=1)
    return Found(*descending(cosines, np.concatenate(positions, axis=1)))


def _by_id(
    shards: list[Found], catalogue: Catalogue, query: int, k: int
) -> tuple[list[float], list[int]]:
    """Cosines and positions of the k best of one query that has ties."""
    found: list[NDArray[np.float64]] = []
    at: list[NDArray[np.int64]] = []
    for shard, start in zip(shards, catalogue.starts, strict=False):
        cosines, positions = shard.more.get(query, (shard.cosines[query], shard.positions[query]))
        found.append(cosines)
        at.append(positions + start)
    cosines, positions = np.concatenate(found), np.concatenate(at)
    least = np.partition(cosines, -k)[-k] if len(cosines) > k else -np.inf
    stay = (cosines >= least) & (cosines > -np.inf)
    best = sorted(
        (-cosine, catalogue.id(position), position)
        for cosine, position in zip(cosines[stay].tolist(), positions[stay].tolist(), strict=True)
    )[:k]
    return [-cosine for cosine, _, _ in best], [position for _, _, position in best]
