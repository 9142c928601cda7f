"""What the server asks of a collection: an index, or a library of tunes.

A `Query` goes in. `Collection.resolve` checks it and fills in its modalities; `Collection.answer`
takes a batch of checked queries. An `Answer` is a list of entries: a `Card`, the item as people see
it, with a score. `PendingCollection` stands in for a collection that is still being built.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Protocol
from urllib.parse import quote

from ccal.errors import CcalError, InputError

if TYPE_CHECKING:
    from ccal.retrieval.backends.base import Vectors
    from ccal.serve.run_evaluation import RunEvaluation

_MEDIA = ("image", "thumbnail", "audio", "staff")
_BRIEF = ("id", "modality", "kind", "title", "text")
_JOIN_SECONDS = 10.0

encode = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")
).encode
"""Plain values as JSON; NaN, which JSON lacks, raises `ValueError`."""

Report = Callable[[str, int, int], None]
"""Receives the name of a step, how much of it is done, and how much there is to do."""


class UnknownItemError(InputError):
    """There is no such item, or it has nothing of this kind to show."""


class NotReadyError(CcalError):
    """The collection is still being built: `done` of `total`, both 0 if that is not known."""

    def __init__(self, what: str, done: int = 0, total: int = 0) -> None:
        progress = f", {done:,} of {total:,}" if total else ""
        super().__init__(f"Getting ready: {what}{progress}.")
        self.done, self.total = done, total


class CutShortError(CcalError):
    """A file became shorter while it was served; the message has its name without its folder."""


@dataclass(frozen=True)
class Query:
    """A query of any kind.

    Args:
        kind: text, image, sheet, audio or item.
        data: the words, the decoded picture, samples with their rate, or the id of the item.
        to: modality to search in; `Collection.resolve` chooses one if it is None.
        k: number of results.
        where: conditions on metadata.
        explain: whether results say why they match.
        modality: of the query itself; `Collection.resolve` fills it in.
    """

    kind: str
    data: Any
    to: str | None = None
    k: int = 10
    where: Mapping[str, Any] | None = None
    explain: bool = False
    modality: str = ""


@dataclass(frozen=True)
class Card:
    """An item as the page shows it.

    `media` are the kinds of media that it has, `counterparts` cards of items that it belongs to,
    such as the captions of a photo: some of `counterparts_total`.
    """

    id: str
    modality: str
    kind: str
    title: str
    metadata: Mapping[str, Any]
    text: str | None = None
    media: Sequence[str] = ()
    counterparts: Sequence[Card] = ()
    counterparts_total: int = 0

    @cached_property
    def opening(self) -> str:
        """The item's part of its JSON, rendered once; score and reasons follow in each answer.

        >>> Card("1", "image", "image", "a dog", {}).opening[:40]
        '{"id":"1","modality":"image","kind":"ima'
        """
        more = {
            "metadata": self.metadata,
            "counterparts": [card._brief() for card in self.counterparts],
            "counterparts_total": self.counterparts_total,
        }
        return encode({**self._brief(), **more})[:-1]

    def _brief(self) -> dict[str, Any]:
        id = quote(self.id, safe="")
        media = {name: f"/media/{name}?id={id}" if name in self.media else None for name in _MEDIA}
        return {**{name: getattr(self, name) for name in _BRIEF}, "media": media}


class Entry(NamedTuple):
    """An item in an answer. A tuple, since searches make many."""

    card: Card
    score: float | None = None
    chance: float | None = None
    match: str | None = None
    why: Mapping[str, Any] | None = None
    place: Mapping[str, Any] | None = None


class SheetAnswer(NamedTuple):
    """What a sheet of music has: its `pages` as JPEG in base64, and its tunes from top to bottom.

    A tune is its staff lines, as plain values for JSON, and the items that it may be.
    """

    pages: Sequence[str]
    tunes: Sequence[tuple[Sequence[Mapping[str, Any]], Sequence[Entry]]]


@dataclass(frozen=True)
class Answer:
    """Results of a query, the best first; `words` are its words with weights if it is explained.

    `sheet` has all tunes of a sheet of music that was sent; `results` are of that with most lines.
    """

    query: Query
    results: Sequence[Entry]
    words: Sequence[Mapping[str, Any]] | None = None
    item: Entry | None = None
    sheet: SheetAnswer | None = None


@dataclass(frozen=True)
class End:
    """Words and items at one end of a dimension: number `end` from 1, negative for the low end.

    `terms` are typical of the texts there, `examples` the outermost items. `words` are those of the
    training texts that correlate most with the dimension, and by how much.
    """

    end: int
    terms: Sequence[str]
    examples: Sequence[Entry]
    words: Sequence[tuple[str, float]] = ()


@dataclass(frozen=True)
class Media:
    """A picture or a sound, as bytes or as an open file."""

    content: bytes | BinaryIO
    type: str


class Collection(Protocol):
    """Items of two modalities to search, look at and listen to. Threads share it."""

    kind: str
    title: str

    def counts(self) -> dict[str, int]:
        """Number of items of each modality."""

    def check(self) -> None:
        """Raises `CcalError` if the collection cannot be read."""

    def info(self) -> dict[str, Any]:
        """Modalities, queries, examples and the model, as plain values for JSON."""

    def queries(self) -> Mapping[str, str]:
        """Kinds of queries (text, image, sheet, audio), each with its modality."""

    def resolve(self, query: Query) -> Query:
        """The query with `modality` and `to`; raises `InputError` if it cannot be answered."""

    def answer(self, queries: Sequence[Query]) -> list[Answer | Exception]:
        """Answers to a batch in order; a query that fails has its exception in place of one."""

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Unit vectors (n, dim) of texts; raises `InputError` if it reads none."""

    def entries(
        self, modality: str | None, contains: str | None, offset: int, limit: int
    ) -> tuple[int, list[Entry]]:
        """The number of items whose names have all words of `contains`, and a page of them."""

    def entry(self, id: str) -> Entry:
        """One item, or `UnknownItemError`."""

    def media(self, kind: str, id: str) -> Media:
        """Image, thumbnail, audio or staff of an item, or `UnknownItemError`."""

    def points(self) -> dict[str, Any]:
        """A map of the space: items with two coordinates, as columns."""

    def dimensions(self, ends: Sequence[int]) -> list[End]:
        """Words and items at ends of dimensions; see `Why` in `ccal.serve.schemas`."""

    def evaluation(self) -> RunEvaluation | None:
        """The measured quality of the model, if its run is known."""

    def warm(self) -> None:
        """Run everything once, so that the first query is not slow."""

    def close(self) -> None:
        """Close files and connections."""


class _StopError(Exception):
    """The server stops, so that the collection is not needed any more."""


class PendingCollection:
    """Stands in for a collection while a thread builds it; every call raises `NotReadyError`.

    Args:
        make: builds the collection, and reports its progress.
        title: of the collection.
        ready: called with the collection, in the thread.

    >>> pending = PendingCollection(lambda report: None, title="folk tunes")
    >>> try:
    ...     pending.check()
    ... except NotReadyError as error:
    ...     print(error)
    Getting ready: loading.
    """

    def __init__(
        self,
        make: Callable[[Report], Collection],
        *,
        title: str,
        ready: Callable[[Collection], None] = lambda _: None,
    ) -> None:
        self.title = title
        self.error: Exception | None = None  # why building failed
        self._make, self._ready = make, ready
        self._made: Collection | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ccal-building", daemon=True)
        self._state = ("loading", 0, 0)

    def warm(self) -> None:
        """Start the thread; the server answers meanwhile."""
        self._thread.start()

    def close(self) -> None:
        """Stop building, or close the collection."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(_JOIN_SECONDS)
        if self._made is not None:
            self._made.close()

    # All other methods of a collection.
    def __getattr__(self, name: str) -> Any:
        if self._made is None:
            raise NotReadyError(*self._state)
        return getattr(self._made, name)

    def _report(self, what: str, done: int, total: int) -> None:
        if self._stopped.is_set():
            raise _StopError
        self._state = (what, done, total)

    def _run(self) -> None:
        try:
            made = self._make(self._report)
            self._report("loading", 0, 0)
            made.warm()
        except _StopError:
            return
        except Exception as error:
            self.error = error
            return
        self._made = made
        self._ready(made)
