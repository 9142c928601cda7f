"""An `Index` as a collection: photos, texts, any two kinds of things."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ccal.errors import CcalError, InputError
from ccal.features.tfidf import refuse_unknown, word_check
from ccal.model import DualEncoder
from ccal.retrieval import Index
from ccal.retrieval.filters import conditions
from ccal.serve.caching import Cached
from ccal.serve.collection import Answer, Entry, Media, Query, Question, UnknownItemError
from ccal.serve.describing import describe_model, has_words, short
from ccal.serve.evaluation import Evaluation, find_run
from ccal.serve.files import ItemFiles
from ccal.serve.index_answers import Answering
from ccal.serve.projection import POINTS, evenly, plane
from ccal.serve.shelf import Shelf

__all__ = ["IndexCollection"]

_EXAMPLES = 12


class IndexCollection:
    """See `ccal.serve.collection.Collection`.

    Args:
        index: opened; other processes may change it meanwhile.
        model: the index's own.
        title: what to call it.
        model_folder: of the model, to look for its run's evaluation.
        root: folder outside of which no file is shown.
    """

    kind = "index"

    def __init__(
        self,
        index: Index,
        model: DualEncoder,
        *,
        title: str = "index",
        model_folder: str | Path | None = None,
        root: Path | None = None,
    ) -> None:
        index.bind(model)
        self.title = title
        self._files = ItemFiles(root)
        self._evaluation = find_run(model_folder)
        self._about = describe_model(model, index.binding.fingerprint, model_folder)
        self._queries = {
            "image" if _reads_images(front_end) else "text": name
            for name, front_end in model.front_ends.items()
        }
        self._shelf = Shelf(index, {name: kind for kind, name in self._queries.items()})
        self._knows = word_check(model.front_ends.get(self._queries.get("text", "")))
        self._answering = Answering(self._shelf, model, index.binding.dims, self._knows)
        self._map = Cached(self._draw, self.counts)

    def counts(self) -> dict[str, int]:
        """Items of each modality."""
        return self._shelf.counts()

    def check(self) -> None:
        """Whether the index can be read."""
        self._shelf.check()

    def queries(self) -> Mapping[str, str]:
        """Kinds of queries that front ends can read."""
        return self._queries

    def info(self) -> dict[str, Any]:
        """What the page has to know before it asks."""
        counts = self.counts()
        kinds = {name: self._shelf.kind(name) for name in counts}
        return {
            "modalities": [
                {"name": name, "kind": kinds[name], "count": count}
                for name, count in counts.items()
            ],
            "queries": [
                {"kind": kind, "modality": name, "to": self._reachable(name)}
                for kind, name in self._queries.items()
            ],
            "has": {
                "map": sum(counts.values()) > 1,
                "evaluation": self._evaluation is not None,
                "where": True,
                "explain": True,
            },
            "examples": self._examples(kinds),
            "model": self._about,
        }

    def ask(self, query: Query) -> Question:
        """A question; the other modality is searched by default."""
        if query.kind == "item":
            modality = self._shelf.item(query.data).modality
        elif query.kind in self._queries:
            modality = self._queries[query.kind]
        else:
            raise InputError(f"This collection cannot be asked by {query.kind}.")
        self._check_modality(query.to)
        reachable = self._reachable(modality)
        if not (query.to in reachable if query.to else reachable):
            raise InputError(f"The collection has no {query.to or ''} items to be found.")
        if query.kind == "text":
            refuse_unknown(query.data, self._knows)
        where = query.where or {}
        conditions(where)
        within = query.to or reachable[0]
        return Question(query.kind, modality, query.data, within, query.k, where, query.explain)

    def answer(self, questions: Sequence[Question]) -> list[Answer | Exception]:
        """Answers in order."""
        return self._answering.answer(questions)

    def entries(
        self, modality: str | None, contains: str | None, offset: int, limit: int
    ) -> tuple[int, list[Entry]]:
        """Some of the items, in the order they came."""
        self._check_modality(modality)
        held = self._shelf.ids()
        chosen = [id for name in ([modality] if modality else held) for id in held[name]]
        if contains is not None:
            names = self._shelf.names()
            chosen = [id for id in chosen if has_words(names.get(id, ""), contains)]
        page = self._shelf.get(chosen[offset : offset + limit])
        return len(chosen), [Entry(self._shelf.card(item)) for item in page]

    def entry(self, id: str) -> Entry:
        """One item."""
        return Entry(self._shelf.card(self._shelf.item(id)))

    def media(self, kind: str, id: str) -> Media:
        """The file of an item, if it is a picture or a sound."""
        file = self._shelf.item(id).file
        if file is None or kind not in ("image", "thumbnail", "audio"):
            raise UnknownItemError(f"The item has no {short(kind, 40)!r}.")
        media: Media = getattr(self._files, kind)(file)
        return media

    def points(self) -> dict[str, Any]:
        """A map of the items, or of some of them if they are many."""
        return self._map.get()

    def evaluation(self) -> Evaluation | None:
        """That of the run the model is from."""
        return self._evaluation

    def warm(self) -> None:
        """Load dictionaries and networks."""
        nothing = {"text": "a", "image": np.zeros((8, 8, 3), np.uint8)}
        for kind, modality in self._queries.items():
            # Nothing in particular may well have no direction.
            with suppress(CcalError):
                self._answering.embed(modality, [nothing[kind]])

    def close(self) -> None:
        """Close the index."""
        self._shelf.close()

    def _check_modality(self, name: str | None) -> None:
        if name is not None and name not in self._shelf.modalities:
            x, y = self._shelf.modalities
            raise InputError(f"The collection has {x} and {y}, no {short(name, 40)!r}.")

    def _reachable(self, modality: str) -> list[str]:
        """Where a query of a modality can search, the other one first."""
        held = self.counts()
        return sorted((name for name in held if held[name]), key=lambda name: name == modality)

    def _examples(self, kinds: Mapping[str, str]) -> dict[str, list[str]]:
        """Texts to ask for, and items to begin with."""
        texts: list[str] = []
        items: list[str] = []
        for name, ids in self._shelf.ids().items():
            some = [ids[place] for place in evenly(len(ids), _EXAMPLES)]
            if kinds[name] == "text" and "text" in self._queries:
                found = (item.metadata.get("text") for item in self._shelf.get(some))
                texts += [text for text in found if isinstance(text, str)]
            else:
                items += some
        # Short ones are easier to read, and to change.
        return {"texts": sorted(texts, key=len)[: _EXAMPLES // 2], "items": items[:_EXAMPLES]}

    def _draw(self) -> dict[str, Any]:
        held = self._shelf.ids()
        total = sum(map(len, held.values()))
        chosen = [
            ids[place]
            for ids in held.values()
            for place in evenly(len(ids), max(1, POINTS * len(ids) // max(total, 1)))
        ]
        if not chosen:
            raise InputError("The collection has no items to draw a map of.")
        cards = [self._shelf.card(item) for item in self._shelf.get(chosen)]
        modalities = [card.modality for card in cards]
        return {
            "total": total,
            "ids": chosen,
            "modalities": modalities,
            "kinds": [card.kind for card in cards],
            "labels": [short(card.title, 80) for card in cards],
            **plane(self._shelf.vectors(chosen), modalities),
        }


def _reads_images(front_end: Any) -> bool:
    from ccal.features import ImageFeatures

    return isinstance(front_end, ImageFeatures)
