"""Answers: candidates of several shards in one order, and hits made when somebody looks at them.

A batch of a thousand queries finds ten thousand hits, and most programs look at few of them. So
scores and positions are kept as arrays, and the item of a position is read on demand, from its
record: id, metadata as JSON, and the file if there is one, separated by zero bytes, which none of
them contains.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Protocol, overload

import numpy as np

from ccal.evaluation.calibration import Match
from ccal.retrieval.exact import Candidates, Doubles, Ints, descending
from ccal.retrieval.items import Hit

Facts = tuple[str, str, Mapping[str, Any], str | None]
"""The fields of an `Item`: id, modality, metadata, file."""
Stored = tuple[str, bytes]
"""An item's modality and its record; equal for equal items."""
Judgement = tuple[float, Match] | tuple[None, None]
"""The chance that a hit is right, and the word for it; None if nobody knows."""
Judge = Callable[[Sequence[float]], Sequence[Judgement]]
"""From the scores of the hits of a query, the best first."""


def pack_record(id: bytes, metadata: bytes, file: bytes | None) -> bytes:
    """A record of its fields, all of them UTF-8.

    >>> pack_record(b"image-1", b"{}", None)
    b'image-1\\x00{}'
    """
    return b"\0".join((id, metadata) if file is None else (id, metadata, file))


def unpack_record(modality: str, record: bytes) -> Facts:
    """The fields of an item.

    >>> unpack_record("text", b'b\\0{"n": 1}\\0b.txt')
    ('b', 'text', {'n': 1}, 'b.txt')
    """
    id, metadata, *file = record.decode().split("\0")
    about = {} if metadata == "{}" else json.loads(metadata)
    return id, modality, about, file[0] if file else None


class Held(Protocol):
    """Records by position."""

    def __len__(self) -> int: ...
    def __getitem__(self, position: int, /) -> bytes: ...


@dataclass(frozen=True)
class ShardRecords:
    """Records of one shard by position; `changed` has those that replace the `held` ones."""

    modality: str
    held: Held
    changed: Mapping[int, bytes] = field(default_factory=dict)

    def __getitem__(self, position: int) -> bytes:
        # Most shards have no change, and skip the lookup.
        found = self.changed.get(position) if self.changed else None
        return self.held[position] if found is None else found


class Catalogue:
    """Records of several shards in one numbering, in which shard n begins at `starts[n]`.

    >>> both = Catalogue([ShardRecords("image", [b"a\\0{}"]), ShardRecords("text", [b"b\\0{}"])])
    >>> both.stored(1)
    ('text', b'b\\x00{}')
    """

    def __init__(self, shards: Sequence[ShardRecords]) -> None:
        self._shards = shards
        self.starts = [0, *accumulate(len(shard.held) for shard in shards)]

    def stored(self, position: int) -> Stored:
        """Modality and record of the item at a position."""
        number = bisect_right(self.starts, position) - 1
        shard = self._shards[number]
        return shard.modality, shard[position - self.starts[number]]


class Judged:
    """The chances of the hits of one query, computed when somebody looks at them."""

    __slots__ = ("_found", "_judge", "_scores")

    def __init__(self, judge: Judge, scores: Doubles) -> None:
        self._judge, self._scores = judge, scores
        self._found: Sequence[Judgement] | None = None

    def __call__(self) -> Sequence[Judgement]:
        """The chance and the word of each score."""
        if self._found is None:
            self._found = self._judge(self._scores.tolist())
        return self._found


class Hits(Sequence[Hit]):
    """The hits of one query, the best first, as a list that cannot be changed.

    They stay as they were found, whatever happens to the index later.

    >>> catalogue = Catalogue([ShardRecords("image", [b"bird\\0{}", b"dog\\0{}\\0dog.jpg"])])
    >>> hits = Hits(np.array([0.9, 0.5]), np.array([1, 0]), catalogue)
    >>> [hit.id for hit in hits], hits[0].score, len(hits)
    (['dog', 'bird'], 0.9, 2)
    """

    __slots__ = ("_catalogue", "_judged", "_positions", "_scores")

    def __init__(
        self, scores: Doubles, positions: Ints, catalogue: Catalogue, judged: Judged | None = None
    ) -> None:
        self._scores, self._positions, self._catalogue = scores, positions, catalogue
        self._judged = judged

    def __len__(self) -> int:
        return len(self._scores)

    @overload
    def __getitem__(self, number: int) -> Hit: ...
    @overload
    def __getitem__(self, number: slice) -> list[Hit]: ...
    def __getitem__(self, number: int | slice) -> Hit | list[Hit]:
        if isinstance(number, slice):
            return list(self)[number]
        judgement = self._judgements()[number]
        return self._hit(float(self._scores[number]), int(self._positions[number]), judgement)

    def __iter__(self) -> Iterator[Hit]:
        return map(self._hit, self._scores.tolist(), self._positions.tolist(), self._judgements())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, list | Hits):
            return NotImplemented
        return list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))

    def __reduce__(self) -> tuple[Any, ...]:
        # Positions mean nothing in another process.
        return list, (list(self),)

    def judged(self, judge: Judge, k: int) -> Hits:
        """The first k, with chances by the scores of all."""
        judged = Judged(judge, self._scores)
        return Hits(self._scores[:k], self._positions[:k], self._catalogue, judged)

    def stored(self) -> Iterator[tuple[float, Judgement, Stored]]:
        """Scores, chances and stored items, for callers that have decoded some of them before."""
        stored = map(self._catalogue.stored, self._positions.tolist())
        return zip(self._scores.tolist(), self._judgements(), stored, strict=True)

    def _judgements(self) -> Sequence[Judgement]:
        if self._judged is None:
            return [(None, None)] * len(self)
        return self._judged()[: len(self)]

    def _hit(self, score: float, position: int, judgement: Judgement) -> Hit:
        id, modality, metadata, file = unpack_record(*self._catalogue.stored(position))
        return Hit(id, score, modality, metadata, file, *judgement)


def ranked(shards: list[Candidates], catalogue: Catalogue, queries: int, k: int) -> list[Hits]:
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
        rows = zip(cosines[:, :k], positions[:, :k], strict=True)
        return [Hits(*row, catalogue) for row in rows]
    ends = (cosines[:, :k] > -np.inf).sum(axis=1).tolist()
    tied = many.union(np.flatnonzero((~falls & (cosines[:, 1:] > -np.inf)).any(1)).tolist())
    cosines, positions = cosines[:, :k].copy(), positions[:, :k].copy()
    for query in tied:
        best, at = _by_id(shards, catalogue, query, k)
        cosines[query, : len(best)], positions[query, : len(at)] = best, at
    return [Hits(cosines[n, :end], positions[n, :end], catalogue) for n, end in enumerate(ends)]


def _joined(shards: list[Candidates], starts: list[int], queries: int) -> Candidates:
    """Candidates of all shards in one numbering."""
    if not shards:
        return Candidates.nothing(queries)
    positions = [shard.positions + start for shard, start in zip(shards, starts, strict=False)]
    cosines = np.concatenate([shard.cosines for shard in shards], axis=1)
    return Candidates(*descending(cosines, np.concatenate(positions, axis=1)))


def _by_id(
    shards: list[Candidates], catalogue: Catalogue, query: int, k: int
) -> tuple[list[float], list[int]]:
    """Cosines and positions of the k best of one query that has ties."""
    found: list[Doubles] = []
    at: list[Ints] = []
    for shard, start in zip(shards, catalogue.starts, strict=False):
        cosines, positions = shard.more.get(query, (shard.cosines[query], shard.positions[query]))
        found.append(cosines)
        at.append(positions + start)
    cosines, positions = np.concatenate(found), np.concatenate(at)
    least = np.partition(cosines, -k)[-k] if len(cosines) > k else -np.inf
    stay = (cosines >= least) & (cosines > -np.inf)
    # Records begin with the id; UTF-8 sorts as its text does.
    best = sorted(
        (-cosine, catalogue.stored(position)[1].partition(b"\0")[0], position)
        for cosine, position in zip(cosines[stay].tolist(), positions[stay].tolist(), strict=True)
    )[:k]
    return [-cosine for cosine, _, _ in best], [position for _, _, position in best]
