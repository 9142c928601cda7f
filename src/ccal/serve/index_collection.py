"""An `Index` as a collection: photos, texts, items of any two modalities.

Queries of a batch are embedded together, one call of the model for each modality, and searched
together, one call of the index for each direction and each filter.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ccal.columns import short
from ccal.errors import CcalError, InputError
from ccal.evaluation import evenly_spaced
from ccal.features import reads_images
from ccal.features.text import refuse_unknown, word_check
from ccal.model import DualEncoder
from ccal.retrieval import Index
from ccal.retrieval.backends.base import Vectors
from ccal.retrieval.embedding import embed
from ccal.retrieval.filters import conditions
from ccal.serve import describing, reasons
from ccal.serve.batching import attempt
from ccal.serve.cached_reader import Cached, CachedReader
from ccal.serve.collection import Answer, End, Entry, Media, Query, UnknownItemError
from ccal.serve.describing import check_modality, has_words
from ccal.serve.item_files import ItemFiles
from ccal.serve.mapping import Map
from ccal.serve.run_evaluation import RunEvaluation, find_run
from ccal.serve.sample import MOST, Sample

_EXAMPLES = 12


class IndexCollection:
    """See `ccal.serve.collection.Collection`.

    Args:
        index: opened; other processes may change it meanwhile.
        model: the model that the index was built with.
        title: shown on the page.
        model_folder: of the model, to look for the evaluation of its run.
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
        self.title, self._model = title, model
        # Unit vectors (n, d) of n raw items of a modality.
        self._embed = partial(embed, model, dims=index.binding.dims)
        self._files = ItemFiles(root)
        self._evaluation = find_run(model_folder)
        known = None if self._evaluation is None else self._evaluation.dimensions
        # A model that was changed after its training may have others.
        fits = known is not None and len(known["dimensions"]) == model.dim
        self._dimensions = known if fits else None
        self._about = describing.describe_model(model, index.binding.fingerprint, model_folder)
        self._queries = {
            "image" if reads_images(front_end) else "text": name
            for name, front_end in model.front_ends.items()
        }
        self._reader = CachedReader(index, {name: kind for kind, name in self._queries.items()})
        self._knows = word_check(model.front_ends.get(self._queries.get("text", "")))
        self.counts = self._reader.counts  # a method of a collection
        self._sample = Cached(self._read_sample, self.counts, seconds=3600.0)
        self._map = Cached(lambda: Map(self._sample()), self._sample, seconds=math.inf)

    def check(self) -> None:
        """An index that is gone, damaged, or of another model by now raises its error."""
        self._reader.index.ping()

    def queries(self) -> Mapping[str, str]:
        """Kinds of queries that the model's front ends read."""
        return self._queries

    def info(self) -> dict[str, Any]:
        """Modalities, queries, examples and the model."""
        counts = self.counts()
        several, evaluated = sum(counts.values()) > 1, self._evaluation is not None
        return {
            "modalities": [
                {"name": name, "kind": self._reader.kind(name), "count": count}
                for name, count in counts.items()
            ],
            "queries": [
                {"kind": kind, "modality": name, "to": self._reachable(name)}
                for kind, name in self._queries.items()
            ],
            "has": {"map": several, "evaluation": evaluated, "where": True, "explain": True},
            "examples": self._examples(),
            "model": self._about,
        }

    def resolve(self, query: Query) -> Query:
        """Search the other modality by default."""
        if query.kind == "item":
            modality = self._reader.item(query.data).modality
        elif query.kind in self._queries:
            modality = self._queries[query.kind]
        else:
            raise InputError(f"This collection cannot be asked by {query.kind}.")
        check_modality(query.to, self._reader.modalities)
        reachable = self._reachable(modality)
        if not (query.to in reachable if query.to else reachable):
            raise InputError(f"The collection has no {query.to or ''} items to be found.")
        if query.kind == "text":
            refuse_unknown(query.data, self._knows)
        where = query.where or {}
        conditions(where)
        return replace(query, modality=modality, to=query.to or reachable[0], where=where)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Vectors as queries in words have them."""
        if "text" not in self._queries:
            raise InputError("The model of this collection reads no texts.")
        for text in texts:
            refuse_unknown(text, self._knows)
        return self._embed(self._queries["text"], list(texts))

    def answer(self, queries: Sequence[Query]) -> list[Answer | Exception]:
        """Embed all queries, search group by group, explain each."""
        embedded = self._embed_queries(queries)
        # An exception in place of vectors is also the answer.
        answers: list[Any] = list(embedded)
        groups: dict[tuple[str, str | None, str], list[int]] = {}
        for number, (query, rows) in enumerate(zip(queries, embedded, strict=True)):
            if not isinstance(rows, Exception):
                same = (query.modality, query.to, repr(query.where))
                groups.setdefault(same, []).append(number)
        for members in groups.values():
            group = [queries[number] for number in members]
            vectors = np.stack([embedded[number][0] for number in members])
            found = attempt(self._reader.search, group, vectors)
            for place, number in enumerate(members):
                answers[number] = found
                if not isinstance(found, Exception):
                    own = queries[number], embedded[number], found[place]
                    answers[number] = attempt(self._explain, *own)
        return answers

    def entries(
        self, modality: str | None, contains: str | None, offset: int, limit: int
    ) -> tuple[int, list[Entry]]:
        """A page of the items in order of insertion."""
        check_modality(modality, self._reader.modalities)
        ids = self._reader.ids()
        chosen = [id for name in ([modality] if modality else ids) for id in ids[name]]
        if contains is not None:
            names = self._reader.names()
            chosen = [id for id in chosen if has_words(names.get(id, ""), contains)]
        page = self._reader.index.get(chosen[offset : offset + limit])
        return len(chosen), [Entry(card) for card in self._reader.cards(page)]

    def entry(self, id: str) -> Entry:
        """One item."""
        (card,) = self._reader.cards([self._reader.item(id)])
        return Entry(card)

    def media(self, kind: str, id: str) -> Media:
        """The file of an item, if it is a picture or a sound."""
        file = self._reader.item(id).file
        if file is None or kind not in ("image", "thumbnail", "audio"):
            raise UnknownItemError(f"The item has no {short(kind, 40)!r}.")
        media: Media = getattr(self._files, kind)(file)
        return media

    def points(self) -> dict[str, Any]:
        """A map of the items, or of 5,000 of them if there are more."""
        return self._map().answer

    def dimensions(self, ends: Sequence[int]) -> list[End]:
        """Words and items at ends of dimensions."""
        sample = self._sample()
        width = sample.vectors.shape[1] - (4 if self._model.hubs is not None else 0)
        for end in ends:
            if not 1 <= abs(end) <= width:
                raise InputError(f"end must be ±1 to ±{width}, the dimensions, got {end}.")
        found = []
        for end in ends:
            terms, cards = sample.ends.describe(end)
            words = reasons.words_at(end, self._dimensions)
            found.append(End(end, terms, [Entry(card) for card in cards], words))
        return found

    def evaluation(self) -> RunEvaluation | None:
        """The evaluation of the model's run."""
        return self._evaluation

    def warm(self) -> None:
        """Load vocabularies and networks."""
        samples = {"text": "a", "image": np.zeros((8, 8, 3), np.uint8)}
        for kind, modality in self._queries.items():
            # A sample may embed to the zero vector, which is refused.
            with suppress(CcalError):
                self._embed(modality, [samples[kind]])

    def close(self) -> None:
        """Close the index."""
        self._reader.index.close()

    def _reachable(self, modality: str) -> list[str]:
        """Modalities with items for a query of `modality` to find, the other one first."""
        counts = self.counts()
        return sorted((name for name in counts if counts[name]), key=lambda name: name == modality)

    def _embed_queries(self, queries: Sequence[Query]) -> list[Any]:
        """Vectors (1 + words, d) of each query: itself, and without each word if to be explained.

        A query that cannot be embedded has an exception in place of vectors.
        """
        embedded: list[Any] = [None] * len(queries)
        by_modality: dict[str, list[tuple[int, list[Any]]]] = {}
        for number, query in enumerate(queries):
            if query.kind == "item":
                embedded[number] = attempt(self._reader.index.vectors, [query.data])
                continue
            items = [query.data]
            if query.explain and query.kind == "text":
                items += reasons.leave_one_out(query.data)
            by_modality.setdefault(query.modality, []).append((number, items))
        for modality, parts in by_modality.items():
            whole = attempt(self._embed, modality, [item for _, items in parts for item in items])
            if isinstance(whole, Exception):
                # One query fails the whole batch: embed each alone, so that the others pass.
                several = [attempt(self._embed, modality, items) for _, items in parts]
            else:
                several = np.split(whole, np.cumsum([len(items) for _, items in parts])[:-1])
            for (number, _), rows in zip(parts, several, strict=True):
                embedded[number] = rows
        return embedded

    def _explain(self, query: Query, rows: Vectors, found: list[Entry]) -> Answer:
        item = self.entry(query.data) if query.kind == "item" else None
        if not query.explain:
            return Answer(query, found, item=item)
        stored = self._reader.index.vectors([entry.card.id for entry in found])
        weights, words = None, list[dict[str, Any]]()
        if query.kind == "text":
            words = reasons.split_words(query.data, self._knows)
        why = reasons.contributions(self._model, rows, stored, words, self._dimensions)
        if query.kind == "text":
            cosines = rows.astype(np.float64) @ stored.astype(np.float64).T
            losses = cosines[:1] - cosines[1:]
            for reason, lost in zip(why, losses.T.tolist(), strict=True):
                reason["words"] = reasons.word_weights(words, lost)
            weights = reasons.word_weights(words, losses.mean(1).tolist()) if found else None
        explained = [entry._replace(why=reason) for entry, reason in zip(found, why, strict=True)]
        return Answer(query, explained, words=weights, item=item)

    def _examples(self) -> dict[str, list[str]]:
        """Texts to search for, and items to begin with."""
        texts: list[str] = []
        items: list[str] = []
        for name, ids in self._reader.ids().items():
            some = [ids[number] for number in evenly_spaced(len(ids), _EXAMPLES).tolist()]
            if self._reader.kind(name) == "text" and "text" in self._queries:
                found = (item.metadata.get("text") for item in self._reader.index.get(some))
                texts += [text for text in found if isinstance(text, str)]
            else:
                items += some
        # Short texts are easier to read, and to change.
        return {"texts": sorted(texts, key=len)[: _EXAMPLES // 2], "items": items[:_EXAMPLES]}

    def _read_sample(self) -> Sample:
        ids = self._reader.ids()
        total = sum(map(len, ids.values()))
        if not total:
            raise InputError("The collection has no items to draw a map of.")
        chosen = [
            several[number]
            for several in ids.values()
            for number in evenly_spaced(len(several), max(1, MOST * len(several) // total)).tolist()
        ]
        cards = self._reader.cards(self._reader.index.get(chosen))
        # A photo has the words of its captions.
        words = [[card.text, *(one.text for one in card.counterparts)] for card in cards]
        texts = [" ".join(text for text in several if text) for several in words]
        return Sample(total, cards, self._reader.index.vectors(chosen), texts)
