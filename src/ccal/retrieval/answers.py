"""Answers: the hits of a search, each made only when somebody looks at it.

A batch of a thousand queries finds ten thousand hits, and most programs look at few of them. So
scores and positions are kept as arrays, and the item of a position is read on demand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from ccal.retrieval.items import Hit

T = TypeVar("T")
Facts = tuple[str, str, Mapping[str, Any], str | None]
"""The fields of an `Item`: id, modality, metadata, file."""
Stored = tuple[str, bytes]
"""An item's modality and its other fields as stored bytes; equal for equal items."""


class Records(Protocol):
    """The items by position."""

    def stored(self, position: int) -> Stored:
        """The item at a position, as it is stored."""
        ...

    def facts(self, stored: Stored) -> Facts:
        """The same, decoded."""
        ...


class _Lazy(Sequence[T]):
    """What a lazy sequence shares with the list that it stands for."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, list | _Lazy):
            return NotImplemented
        return list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))

    def __reduce__(self) -> tuple[Any, ...]:
        # Positions mean nothing in another process.
        return list, (list(self),)


class Hits(_Lazy[Hit]):
    """The hits of one query, the best first, as a list that cannot be changed.

    They stay as they were found, whatever happens to the index later.

    >>> from ccal.retrieval.backends.folder.ranking import Catalogue, ShardRecords
    >>> held = [b"bird\\0{}", b'dog\\0{"tame": true}\\0dog.jpg']
    >>> records = Catalogue([ShardRecords("image", held)])
    >>> hits = Hits(np.array([0.9, 0.5]), np.array([1, 0]), records)
    >>> [hit.id for hit in hits], hits[0].score, len(hits)
    (['dog', 'bird'], 0.9, 2)
    """

    __slots__ = ("_positions", "_scores", "records")

    def __init__(
        self, scores: NDArray[np.float64], positions: NDArray[np.int64], records: Records
    ) -> None:
        self._scores, self._positions, self.records = scores, positions, records

    def __len__(self) -> int:
        return len(self._scores)

    @overload
    def __getitem__(self, number: int) -> Hit: ...
    @overload
    def __getitem__(self, number: slice) -> list[Hit]: ...
    def __getitem__(self, number: int | slice) -> Hit | list[Hit]:
        if isinstance(number, slice):
            return list(Hits(self._scores[number], self._positions[number], self.records))
        return self._hit(float(self._scores[number]), int(self._positions[number]))

    def __iter__(self) -> Iterator[Hit]:
        return map(self._hit, self._scores.tolist(), self._positions.tolist())

    def stored(self) -> Iterator[tuple[float, Stored]]:
        """Scores and stored items, for callers that have decoded some of them before."""
        return zip(
            self._scores.tolist(), map(self.records.stored, self._positions.tolist()), strict=True
        )

    def _hit(self, score: float, position: int) -> Hit:
        id, modality, metadata, file = self.records.facts(self.records.stored(position))
        return Hit(id, score, modality, metadata, file)


class Answers(_Lazy[Hits]):
    """The hits of each query of a batch.

    `scores` and `positions` are (q, m), the best first. Query n has the first `ends[n]` of its row,
    all of them if `ends` is None.
    """

    __slots__ = ("_ends", "_positions", "_records", "_scores")

    def __init__(
        self,
        scores: NDArray[np.float64],
        positions: NDArray[np.int64],
        ends: NDArray[np.int64] | None,
        records: Records,
    ) -> None:
        self._scores, self._positions, self._ends, self._records = scores, positions, ends, records

    def __len__(self) -> int:
        return len(self._scores)

    @overload
    def __getitem__(self, number: int) -> Hits: ...
    @overload
    def __getitem__(self, number: slice) -> list[Hits]: ...
    def __getitem__(self, number: int | slice) -> Hits | list[Hits]:
        if isinstance(number, slice):
            return [self[n] for n in range(*number.indices(len(self)))]
        scores, positions = self._scores[number], self._positions[number]
        if self._ends is not None:
            scores, positions = scores[: self._ends[number]], positions[: self._ends[number]]
        return Hits(scores, positions, self._records)


def scored(query: Any, facts: Sequence[Facts], vectors: Sequence[Any]) -> list[Hit]:
    """Hits of one query (d,) with their cosines in float64, as every backend gives them.

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
