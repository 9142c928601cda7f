"""An index as the server reads it, with caches of all that is asked for often."""

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from ccal.columns import short
from ccal.errors import InputError
from ccal.retrieval import Hit, Index, Item
from ccal.retrieval.answers import Hits, Stored, unpack_record
from ccal.retrieval.backends.base import Vectors
from ccal.retrieval.items import counterparts
from ccal.serve.collection import Card, Entry, Query, UnknownItemError
from ccal.serve.describing import card_of, kind_of

Value = TypeVar("Value")
_MOST_NAMES, _MOST_CARDS = 100_000, 20_000
_MISSING = object()
_log = logging.getLogger("ccal.serve")


class Cached(Generic[Value]):
    """Computes a value again if `state` has changed, or after `seconds`; in one thread at a time.

    >>> calls = []
    >>> value = Cached(lambda: calls.append(1) or len(calls), state=lambda: "same")
    >>> value(), value()
    (1, 1)
    """

    def __init__(
        self, make: Callable[[], Value], state: Callable[[], object], seconds: float = 300.0
    ) -> None:
        self._make, self._state, self._seconds = make, state, seconds
        self._lock = threading.RLock()
        self._kept: tuple[object, float, Value] | None = None

    def __call__(self) -> Value:
        """The current value."""
        state, now = self._state(), time.monotonic()
        kept = self._kept
        if kept is None or kept[0] != state or now - kept[1] > self._seconds:
            with self._lock:
                # Another thread may have computed it while this one waited.
                if self._kept is kept:
                    self._kept = (state, now, self._make())
                kept = self._kept
        assert kept is not None
        return kept[2]


class FileSizes:
    """Sizes of the memory-mapped files of a folder, to notice files that become shorter.

    The system kills a process that reads beyond the end of a mapped file. A file that another one
    of its name replaces does no harm, since the old one stays mapped: files are told apart by their
    inode. A look takes microseconds a file.

    Args:
        mapped: by its name, whether a file is mapped; others may shrink.
    """

    def __init__(self, folder: Path, mapped: Callable[[str], bool]) -> None:
        self._folder, self._mapped = folder, mapped
        self._known = self._look()

    def cut(self) -> list[str]:
        """Names of the files that are shorter than at the last call."""
        before, self._known = self._known, self._look()
        return sorted(
            file[0] for file, size in self._known.items() if file in before and size < before[file]
        )

    def _look(self) -> dict[tuple[str, int], int]:
        found = {}
        # If the folder cannot be read, the reader of its files raises a better message.
        with suppress(OSError), os.scandir(self._folder) as entries:
            for entry in entries:
                if self._mapped(entry.name) and entry.is_file():
                    about = entry.stat()
                    found[entry.name, about.st_ino] = about.st_size
        return found


class _Cards(NamedTuple):
    """Cards that have been made before."""

    found: dict[Stored, Card]
    counterparts: dict[str, Card | None]


class CachedReader:
    """Reads an index, which other processes may change meanwhile. Threads share it.

    `counts()` of the modalities are cached for a second; `ids()` by modality, in order of
    insertion, names, and cards of found items until the counts change, and five minutes at most;
    of cards there are 20,000 at most. `kinds` says how to show items of a modality, where that does
    not depend on the items. One thread searches at a time.
    """

    def __init__(self, index: Index, kinds: dict[str, str]) -> None:
        self.index, self._kinds, self.modalities = index, kinds, index.binding.modalities
        about = index.stats()
        # A database looks after its own files.
        self._sizes = (
            FileSizes(Path(about.location), _mapped) if about.backend == "folder" else None
        )
        self.counts = Cached(self.count, lambda: None, seconds=1.0)
        self.ids = Cached(
            lambda: {name: index.ids(name) for name in self.modalities}, state=self.counts
        )
        self._names = Cached(self._read_names, self.counts)
        # Cards of found items by their records, and of counterparts by their ids.
        self._cards = Cached(lambda: _Cards({}, {}), self.counts)

    def count(self) -> dict[str, int]:
        """Number of items of each modality, read now."""
        return {name: self.index.count(name) for name in self.modalities}

    def names(self) -> dict[str, str]:
        """Title and text of each item by its id, casefolded, for an index of up to 100,000."""
        if sum(self.counts().values()) > _MOST_NAMES:
            raise InputError(
                f"Names can be filtered among {_MOST_NAMES:,} items at most; search instead."
            )
        return self._names()

    def item(self, id: str) -> Item:
        """One item."""
        try:
            (item,) = self.index.get([id])
        except InputError as error:
            raise UnknownItemError(f"There is no item {short(id, 200)!r}.") from error
        return item

    def card(self, item: Item | Hit, others: Sequence[Card] = ()) -> Card:
        """An item as it is shown, with these cards of its counterparts."""
        return card_of(item, self.kind(item.modality), others)

    def cards(self, items: Sequence[Item | Hit]) -> list[Card]:
        """Items as they are shown, with their counterparts."""
        links = [counterparts(item)[0] for item in items]
        cached = self._cards().counterparts
        # Copied, since another thread may clear the cache meanwhile.
        known = {id: cached.get(id, _MISSING) for ids in links for id in ids}
        if missing := sorted(id for id, card in known.items() if card is _MISSING):
            # A removed item is cached as None, so that the index is not asked for it again.
            new: dict[str, Card | None] = dict.fromkeys(missing)
            new |= {item.id: self.card(item) for item in self._existing(missing)}
            if len(cached) >= _MOST_CARDS:
                cached.clear()
            cached |= new
            known |= new
        found = [[card for id in ids if isinstance(card := known[id], Card)] for ids in links]
        return [self.card(item, others) for item, others in zip(items, found, strict=True)]

    def kind(self, modality: str) -> str:
        """How items of a modality are shown; if `kinds` does not say it, the first item decides."""
        if modality not in self._kinds:
            first = self.ids()[modality][:1]
            if not first:
                return "array"
            self._kinds[modality] = kind_of(self.index.get(first)[0])
        return self._kinds[modality]

    def search(self, queries: Sequence[Query], vectors: Vectors) -> list[list[Entry]]:
        """Results of queries of one modality with the same `to` and `where`, by vectors (n, d)."""
        to, where = queries[0].to, queries[0].where or {}
        # One more for an item, which finds itself.
        k = max(query.k + (query.kind == "item") for query in queries)
        if self._sizes is not None and (cut := self._sizes.cut()):
            _log.warning("cut short: %s; all files are read again", ", ".join(cut))
            self.index.check()
        found = self.index.search_vectors(
            vectors, k=k, within=to, where=where, modality=queries[0].modality
        )
        results = []
        for query, hits in zip(queries, found, strict=True):
            own = query.data if query.kind == "item" else None
            others = [entry for entry in self._entries(hits) if entry.card.id != own]
            results.append(others[: query.k])
        return results

    def _entries(self, hits: Hits | Sequence[Hit]) -> list[Entry]:
        """Hits with their cards, which are cached: reading an item takes as long as finding it."""
        if not isinstance(hits, Hits):
            shown = zip(self.cards(hits), hits, strict=True)
            return [Entry(card, hit.score, hit.chance, hit.match) for card, hit in shown]
        cards, results = self._cards().found, list(hits.stored())
        if new := [stored for *_, stored in results if stored not in cards]:
            if len(cards) >= _MOST_CARDS:
                cards.clear()
                new = [stored for *_, stored in results]
            made = self.cards([Item(*unpack_record(*stored)) for stored in new])
            cards |= dict(zip(new, made, strict=True))
        return [Entry(cards[stored], score, *judgement) for score, judgement, stored in results]

    def _existing(self, ids: Sequence[str]) -> list[Item]:
        """The items of those ids that are in the index."""
        try:
            return self.index.get(ids)
        except InputError:
            found = []
            for id in ids:
                with suppress(InputError):
                    found += self.index.get([id])
            return found

    def _read_names(self) -> dict[str, str]:
        cards = [self.card(item) for ids in self.ids().values() for item in self.index.get(ids)]
        return {card.id: f"{card.title} {card.text or ''}".casefold() for card in cards}


def _mapped(name: str) -> bool:
    """Every file of an index is mapped, except its database, its lock and hidden files."""
    return ".sqlite" not in name and not name.startswith(".") and not name.endswith(".lock")
