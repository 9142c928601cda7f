"""The items of an index, for several threads at once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path

from ccal.errors import InputError
from ccal.retrieval import Hit, Index, Item
from ccal.retrieval.answers import Hits, Stored
from ccal.retrieval.backends.base import Vectors
from ccal.serve.caching import Cached
from ccal.serve.card import Card
from ccal.serve.collection import Entry, Question, UnknownItemError
from ccal.serve.describing import card_of, kind_of, short
from ccal.serve.sizes import Sizes

__all__ = ["Shelf"]

_READABLE, _KEPT = 100_000, 20_000
_log = logging.getLogger("ccal.serve")


class Shelf:
    """Reads an index, which other processes may change meanwhile.

    Homes keep one connection each, on which two threads cannot have transactions, so they take
    turns. What is asked for all the time, and hardly ever changes, is remembered for a while.
    `kinds` says how items of a modality are shown, where that does not depend on the items.
    """

    def __init__(self, index: Index, kinds: dict[str, str]) -> None:
        self.modalities = index.binding.modalities
        self._index, self._kinds = index, kinds
        about = index.stats()
        # Another home's files are its server's business.
        self._sizes = Sizes(Path(about.location), _mapped) if about.backend == "folder" else None
        self._guard = threading.RLock()
        self._counts = Cached(self._count, lambda: None, seconds=1.0)
        self._ids = Cached(self._list, self.counts)
        self._names = Cached(self._read_names, self.counts)
        self._cards: dict[Stored, Card] = {}

    def counts(self) -> dict[str, int]:
        """Items of each modality, as they were a second ago at most."""
        return self._counts.get()

    def check(self) -> None:
        """Read something, so that a damaged index is found out."""
        with self._guard:
            self._count()

    def ids(self) -> dict[str, list[str]]:
        """Ids by modality, in the order they came."""
        return self._ids.get()

    def names(self) -> dict[str, str]:
        """Title and text of each item by its id; of an index that is not too large to read."""
        if sum(self.counts().values()) > _READABLE:
            raise InputError(
                f"Among more than {_READABLE:,} items names cannot be looked for; search instead."
            )
        return self._names.get()

    def get(self, ids: Sequence[str]) -> list[Item]:
        """Items by their ids."""
        with self._guard:
            return self._index.get(ids)

    def item(self, id: str) -> Item:
        """One item."""
        try:
            (item,) = self.get([id])
        except InputError as error:
            raise UnknownItemError(f"There is no item {short(id, 200)!r}.") from error
        return item

    def card(self, item: Item | Hit) -> Card:
        """An item as it is shown."""
        return card_of(item, self.kind(item.modality))

    def kind(self, modality: str) -> str:
        """How items of a modality are shown; the first one decides if nothing else does."""
        if modality not in self._kinds:
            first = self.ids()[modality][:1]
            if not first:
                return "array"
            self._kinds[modality] = kind_of(self.get(first)[0])
        return self._kinds[modality]

    def vectors(self, ids: Sequence[str]) -> Vectors:
        """Vectors (n, d) as they are stored."""
        with self._guard:
            return self._index.vectors(ids)

    def search(self, asked: Sequence[Question], vectors: Vectors) -> list[list[Entry]]:
        """What questions of one modality and one filter find, by their vectors (n, d)."""
        # One more, since an item would find itself.
        k = max(question.k + (question.kind == "item") for question in asked)
        with self._guard:
            self._mend()
            found = self._index.search_vectors(
                vectors, k=k, within=asked[0].within, where=asked[0].where
            )
            # Hits are read when they are looked at, which also takes turns.
            entries = [self._entries(hits) for hits in found]
        return [
            [one for one in several if question.kind != "item" or one.card.id != question.data][
                : question.k
            ]
            for question, several in zip(asked, entries, strict=True)
        ]

    def close(self) -> None:
        """Close the index."""
        with self._guard:
            self._index.close()

    def _entries(self, hits: Hits | Sequence[Hit]) -> list[Entry]:
        """Hits as they are shown; cards are kept, since reading takes as long as finding."""
        if not isinstance(hits, Hits):
            return [Entry(self.card(hit), hit.score) for hit in hits]
        cards, entries = self._cards, []
        for score, stored in hits.stored():
            card = cards.get(stored)
            if card is None:
                if len(cards) >= _KEPT:
                    cards.clear()
                card = cards[stored] = self.card(Item(*hits.records.facts(stored)))
            entries.append(Entry(card, score))
        return entries

    def _mend(self) -> None:
        """Let go of files that somebody has cut short, before they are read."""
        if self._sizes is not None and (cut := self._sizes.cut()):
            _log.warning("cut short: %s; all files are read again", ", ".join(cut))
            self._index.check()

    def _count(self) -> dict[str, int]:
        with self._guard:
            return {name: self._index.count(name) for name in self.modalities}

    def _list(self) -> dict[str, list[str]]:
        with self._guard:
            return {name: self._index.ids(name) for name in self.modalities}

    def _read_names(self) -> dict[str, str]:
        names = {}
        for ids in self.ids().values():
            for item in self.get(ids):
                card = self.card(item)
                names[item.id] = f"{card.title} {card.text or ''}".casefold()
        return names


def _mapped(name: str) -> bool:
    """The database and the writer's lock are read in other ways."""
    return not name.startswith((".", "truth.sqlite")) and not name.endswith(".lock")
