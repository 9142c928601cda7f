"""A `TuneLibrary` as a collection: recordings find scores, and scores find recordings."""

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from ccal.columns import short
from ccal.errors import InputError
from ccal.evaluation import evenly_spaced
from ccal.model import DualEncoder
from ccal.music import TuneLibrary, TuneMatch
from ccal.optional import require
from ccal.retrieval import fingerprint
from ccal.retrieval.backends.base import Vectors
from ccal.serve import describing
from ccal.serve.batching import attempt
from ccal.serve.collection import (
    Answer,
    Card,
    End,
    Entry,
    Media,
    Query,
    SheetAnswer,
    UnknownItemError,
)
from ccal.serve.describing import check_modality, has_words
from ccal.serve.mapping import Map
from ccal.serve.run_evaluation import RunEvaluation, find_run
from ccal.serve.sample import MOST, Sample
from ccal.serve.uploads import UploadedSheet

_ID = re.compile(r"tune-(0|[1-9][0-9]{0,8})")
_MODALITIES, _OTHER = ("sheet", "audio"), {"audio": "sheet", "sheet": "audio"}
# From this chance on a match is called strong.
_STRONG = 0.8
_EXAMPLES, _SOUNDS, _DRAWINGS = 12, 64, 512


class TuneCollection:
    """See `ccal.serve.collection.Collection`. One item is a tune, as a staff and as a sound."""

    kind = "tunes"

    def __init__(
        self,
        library: TuneLibrary,
        model: DualEncoder,
        *,
        title: str = "tunes",
        model_folder: str | Path | None = None,
    ) -> None:
        self.title, self._library = title, library
        self._evaluation = find_run(model_folder)
        self._about = describing.describe_model(model, fingerprint(model), model_folder)
        self._sound = lru_cache(maxsize=_SOUNDS)(library.wav)
        self._drawing = lru_cache(maxsize=_DRAWINGS)(library.staff_svg)
        self._map = lru_cache(maxsize=1)(self._draw)

    def counts(self) -> dict[str, int]:
        """Each tune counts in both modalities."""
        return dict.fromkeys(_MODALITIES, len(self._library))

    def check(self) -> None:
        """A library is in memory, so that nothing can happen to it."""

    def queries(self) -> Mapping[str, str]:
        """Recordings, and pages of music."""
        return {kind: kind for kind in _OTHER}

    def info(self) -> dict[str, Any]:
        """Modalities, queries, examples and the model."""
        count, evaluated = len(self._library), self._evaluation is not None
        examples = evenly_spaced(count, _EXAMPLES).tolist()
        return {
            "modalities": [{"name": name, "kind": name, "count": count} for name in _MODALITIES],
            "count": count,
            "queries": [{"kind": kind, "modality": kind, "to": [_OTHER[kind]]} for kind in _OTHER],
            "has": {"map": count > 1, "evaluation": evaluated, "where": False, "explain": False},
            "examples": {"texts": [], "items": [f"tune-{n}" for n in examples]},
            "model": self._about,
        }

    def resolve(self, query: Query) -> Query:
        """A recording finds staves, a staff finds recordings; a tune does both, staves first."""
        if query.where:
            raise InputError("Tunes have no metadata to filter by; leave `where` out.")
        check_modality(query.to, _MODALITIES)
        if query.kind == "item":
            self._number(query.data)
            to = query.to or "sheet"
            return replace(query, modality=_OTHER[to], to=to, explain=False)
        if query.kind not in _OTHER:
            raise InputError(f"This collection cannot be asked by {query.kind}.")
        to = _OTHER[query.kind]
        if query.to not in (None, to):
            raise InputError(f"A query of {query.kind} finds {to}, not {query.to}.")
        return replace(query, modality=query.kind, to=to)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Tunes are found by recordings and staves, so that there are no texts to embed."""
        raise InputError("The model of this collection reads no texts.")

    def answer(self, queries: Sequence[Query]) -> list[Answer | Exception]:
        """One query after the other: each is a batch of snippets already."""
        return [attempt(self._answer, query) for query in queries]

    def entries(
        self, modality: str | None, contains: str | None, offset: int, limit: int
    ) -> tuple[int, list[Entry]]:
        """A page of the tunes in the order of the library."""
        check_modality(modality, _MODALITIES)
        names = enumerate(self._library.names)
        found = [tune for tune, name in names if has_words(name.casefold(), contains or "")]
        page = found[offset : offset + limit]
        return len(found), [self._entry(tune, modality or "sheet") for tune in page]

    def entry(self, id: str) -> Entry:
        """One tune."""
        return self._entry(self._number(id), "sheet")

    def media(self, kind: str, id: str) -> Media:
        """The staff of a tune as SVG, or its sound as WAV."""
        tune = self._number(id)
        if kind == "staff":
            return Media(self._drawing(tune).encode(), "image/svg+xml")
        if kind == "audio":
            return Media(self._sound(tune), "audio/wav")
        raise UnknownItemError(f"The item has no {kind}.")

    def points(self) -> dict[str, Any]:
        """A map of the tunes, by the mean of their snippets in each modality."""
        return self._map().answer

    def dimensions(self, ends: Sequence[int]) -> list[End]:
        """Tunes are compared snippet by snippet, so that none lies at an end."""
        raise InputError("Matches of tunes are not explained by dimensions.")

    def evaluation(self) -> RunEvaluation | None:
        """The evaluation of the model's run."""
        return self._evaluation

    def warm(self) -> None:
        """Run the networks once."""
        if len(self._library):
            # Noise needs nothing engraved or played.
            self._library.identify((np.random.default_rng(0).normal(0, 0.1, 66_150), 22_050), k=1)

    def close(self) -> None:
        """A library has nothing to close."""

    def _answer(self, query: Query) -> Answer:
        data, item = query.data, None
        if query.kind == "item":
            tune = self._number(data)
            item = self._entry(tune, query.modality)
            data = self._samples(tune) if query.modality == "audio" else self._staff(tune)
        if isinstance(data, UploadedSheet):
            return self._sheet(query, data)
        if query.modality == "audio":
            found = self._library.identify(data, k=query.k)
        else:
            found = self._library.identify_sheet(np.asarray(data), k=query.k)
        results = [self._entry(match.tune, _OTHER[query.modality], match) for match in found]
        return Answer(query, results, item=item)

    def _sheet(self, query: Query, sheet: UploadedSheet) -> Answer:
        """The tunes on pages; `results` are of the tune with most lines."""
        tunes = []
        for found in self._library.identify_page(sheet.lines, k=query.k):
            lines = [
                {"page": line.page, "number": line.number, "outline": line.outline}
                for line in found.lines
            ]
            entries = [self._entry(match.tune, "audio", match) for match in found.matches]
            tunes.append((lines, entries))
        pages = [b64encode(page).decode() for page in sheet.pages] if query.explain else []
        _, results = max(tunes, key=lambda tune: len(tune[0]))
        return Answer(query, results, sheet=SheetAnswer(pages, tunes))

    def _entry(self, tune: int, modality: str, match: TuneMatch | None = None) -> Entry:
        """A tune; all of it, or the part that matches."""
        about, notes = self._library.tunes[tune], self._library.notes(tune)
        duration = float(self._library.seconds(tune, about.frames))
        onsets = zip(self._library.seconds(tune, notes["frame"]), notes["centre"], strict=True)
        place = {
            "columns": match.columns if match else (0.0, float(about.columns)),
            "seconds": match.seconds if match else (0.0, duration),
            "path": match.path if match else [],
            "onsets": [(round(float(s), 3), round(float(c), 1)) for s, c in onsets],
            "width": about.columns,
            "duration": round(duration, 3),
        }
        facts = {"source": about.source, "tempo": round(about.tempo)}
        title, media = short(about.name, 200), ("staff", "audio")
        card = Card(f"tune-{tune}", modality, modality, title, facts, media=media)
        if match is None:
            return Entry(card, place=place)
        return Entry(card, match.score, *_judged(match), place=place)

    def _number(self, id: str) -> int:
        match = _ID.fullmatch(id)
        if match is None or int(match[1]) >= len(self._library):
            raise UnknownItemError(f"There is no item {short(id, 200)!r}.")
        return int(match[1])

    def _staff(self, tune: int) -> Any:
        return np.ascontiguousarray(self._library.staff(tune).T)

    def _samples(self, tune: int) -> Any:
        module = require("soundfile", extra="music", purpose="Reading audio")
        return module.read(BytesIO(self._sound(tune)), dtype="float32")

    def _draw(self) -> Map:
        chosen = evenly_spaced(len(self._library), MOST // 2).tolist()
        cards = [self._entry(tune, name).card for name in _OTHER for tune in chosen]
        means = np.concatenate([_means(self._library, name, chosen) for name in _OTHER])
        return Map(Sample(2 * len(self._library), cards, means, [card.title for card in cards]))


def _judged(match: TuneMatch) -> tuple[float, str]:
    """The chance that a match is right, and a word for it: weak if the tune may be unknown."""
    chance = match.confidence
    return chance, "strong" if chance >= _STRONG else "fair" if match.known else "weak"


def _means(library: TuneLibrary, modality: str, tunes: Sequence[int]) -> Vectors:
    """Mean vectors (n, d) over the snippets of each of n tunes."""
    tunes_of, vectors = library.positions["tune"], library.vectors[modality]
    bounds = np.searchsorted(tunes_of, np.arange(len(library) + 1)).tolist()
    return np.stack([vectors[bounds[tune] : bounds[tune + 1]].mean(0) for tune in tunes])
