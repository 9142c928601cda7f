"""Answers: hits that are made when somebody looks at them.

A batch of a thousand queries finds ten thousand hits, and most programs look at few of them, or at
parts. So scores and places are kept as arrays, and what is known of an item stays where it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from ccal.retrieval.hits import Facts
from ccal.retrieval.items import Hit

__all__ = ["Answers", "Hits", "Keeper", "Stored"]

T = TypeVar("T")
Stored = tuple[str, bytes]
"""An item's modality and the rest as it is kept; they are equal if all that is known is."""


class Keeper(Protocol):
    """Knows the items in all places."""

    def stored(self, place: int) -> Stored:
        """What is kept of the item in a place."""
        ...

    def facts(self, stored: Stored) -> Facts:
        """The same, read."""
        ...


class _Lazy(Sequence[T]):
    """What a lazy sequence has in common with the list that it stands for."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, list | _Lazy):
            return NotImplemented
        return list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process has not what the places are in.
        return list, (list(self),)


class Hits(_Lazy[Hit]):
    """The hits of one query, the best first; behaves as a list of them that nobody changes.

    Later changes of the index do not show.

    >>> from ccal.retrieval.embedded.records import Catalogue, Records
    >>> known = Catalogue([Records("image", [b"bird\\0{}", b'dog\\0{"tame": true}\\0dog.jpg'])])
    >>> hits = Hits(np.array([0.9, 0.5]), np.array([1, 0]), known)
    >>> [hit.id for hit in hits], hits[0].score, len(hits)
    (['dog', 'bird'], 0.9, 2)
    """

    __slots__ = ("_places", "_scores", "keeper")

    def __init__(
        self, scores: NDArray[np.float64], places: NDArray[np.int64], keeper: Keeper
    ) -> None:
        self._scores, self._places, self.keeper = scores, places, keeper

    def __len__(self) -> int:
        return len(self._scores)

    @overload
    def __getitem__(self, number: int) -> Hit: ...
    @overload
    def __getitem__(self, number: slice) -> list[Hit]: ...
    def __getitem__(self, number: int | slice) -> Hit | list[Hit]:
        if isinstance(number, slice):
            return list(Hits(self._scores[number], self._places[number], self.keeper))
        return self._hit(float(self._scores[number]), int(self._places[number]))

    def __iter__(self) -> Iterator[Hit]:
        return map(self._hit, self._scores.tolist(), self._places.tolist())

    def stored(self) -> Iterator[tuple[float, Stored]]:
        """Scores and items that are not read yet, for who knows some of them already."""
        return zip(
            self._scores.tolist(), map(self.keeper.stored, self._places.tolist()), strict=True
        )

    def _hit(self, score: float, place: int) -> Hit:
        id, modality, metadata, file = self.keeper.facts(self.keeper.stored(place))
        return Hit(id, score, modality, metadata, file)


class Answers(_Lazy[Hits]):
    """The hits of each query of a batch.

    `scores` and `places` are (q, m), the best first; of query n the first `ends[n]` count, all of
    them if `ends` is None.
    """

    __slots__ = ("_ends", "_keeper", "_places", "_scores")

    def __init__(
        self,
        scores: NDArray[np.float64],
        places: NDArray[np.int64],
        ends: NDArray[np.int64] | None,
        keeper: Keeper,
    ) -> None:
        self._scores, self._places, self._ends, self._keeper = scores, places, ends, keeper

    def __len__(self) -> int:
        return len(self._scores)

    @overload
    def __getitem__(self, number: int) -> Hits: ...
    @overload
    def __getitem__(self, number: slice) -> list[Hits]: ...
    def __getitem__(self, number: int | slice) -> Hits | list[Hits]:
        if isinstance(number, slice):
            return [self[n] for n in range(*number.indices(len(self)))]
        scores, places = self._scores[number], self._places[number]
        if self._ends is not None:
            scores, places = scores[: self._ends[number]], places[: self._ends[number]]
        return Hits(scores, places, self._keeper)
