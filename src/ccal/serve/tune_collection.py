"""A `TuneLibrary` as a collection: recordings find scores, and scores find sounds."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from ccal.errors import InputError
from ccal.model import DualEncoder
from ccal.music import TuneLibrary, TuneMatch
from ccal.music.audio import FRAME_RATE
from ccal.optional import require
from ccal.retrieval import fingerprint
from ccal.retrieval.backends.base import Vectors
from ccal.serve.card import Card
from ccal.serve.collection import Answer, Entry, Media, Query, Question, UnknownItemError
from ccal.serve.describing import describe_model, has_words, short
from ccal.serve.evaluation import Evaluation, find_run
from ccal.serve.projection import POINTS, evenly, plane
from ccal.serve.sizes import CutShortError, Sizes

__all__ = ["TuneCollection"]

_ID = re.compile(r"tune-(0|[1-9][0-9]{0,8})")
_OTHER = {"audio": "sheet", "sheet": "audio"}
_EXAMPLES, _KEPT = 12, 64


class TuneCollection:
    """See `ccal.serve.collection.Collection`. One item is a tune, to be seen and to be heard."""

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
        self._about = describe_model(model, fingerprint(model), model_folder)
        self._sounds: OrderedDict[int, bytes] = OrderedDict()
        self._guard = threading.Lock()
        folders = {library.folder, library.store.folder}
        self._sizes = [Sizes(folder, lambda name: name.endswith(".npy")) for folder in folders]
        self._cut: list[str] = []
        self._scale = _width_of(library.staff_png(0)) // self._width(0) if len(library) else 1
        self._points = lru_cache(maxsize=1)(self._read_points)

    def counts(self) -> dict[str, int]:
        """Each tune is there twice, to be seen and to be heard."""
        return {"sheet": len(self._library), "audio": len(self._library)}

    def check(self) -> None:
        """The files were checked when they were opened; they must not become shorter since."""
        with self._guard:
            self._cut += [name for sizes in self._sizes for name in sizes.cut()]
            if self._cut:
                raise CutShortError(self._cut)

    def queries(self) -> Mapping[str, str]:
        """Recordings, and pictures of a staff."""
        return {"audio": "audio", "sheet": "sheet"}

    def info(self) -> dict[str, Any]:
        """What the page has to know before it asks."""
        chosen = evenly(len(self._library), _EXAMPLES)
        return {
            "modalities": [
                {"name": name, "kind": name, "count": count}
                for name, count in self.counts().items()
            ],
            "count": len(self._library),
            "queries": [{"kind": kind, "modality": kind, "to": [_OTHER[kind]]} for kind in _OTHER],
            "has": {
                "map": len(self._library) > 1,
                "evaluation": self._evaluation is not None,
                "where": False,
                "explain": False,
            },
            "examples": {"texts": [], "items": [f"tune-{tune}" for tune in chosen]},
            "model": self._about,
        }

    def ask(self, query: Query) -> Question:
        """A question; a tune is asked for by its sound, or by its staff to be heard."""
        if query.where:
            raise InputError("Tunes have no metadata to filter by; leave `where` out.")
        _check_modality(query.to)
        if query.kind == "item":
            self._number(query.data)
            within = query.to or "sheet"
            return Question(query.kind, _OTHER[within], query.data, within, query.k)
        if query.kind not in _OTHER:
            raise InputError(f"This collection cannot be asked by {query.kind}.")
        within = _OTHER[query.kind]
        if query.to not in (None, within):
            raise InputError(f"A query of {query.kind} finds {within}, not {query.to}.")
        return Question(query.kind, query.kind, query.data, within, query.k)

    def answer(self, questions: Sequence[Question]) -> list[Answer | Exception]:
        """One after the other: each is a batch of snippets already."""
        replies: list[Answer | Exception] = []
        for question in questions:
            try:
                self.check()
                replies.append(self._answer(question))
            except Exception as error:
                replies.append(error)
        return replies

    def entries(
        self, modality: str | None, contains: str | None, offset: int, limit: int
    ) -> tuple[int, list[Entry]]:
        """Some of the tunes, in the order of the library."""
        _check_modality(modality)
        found = [
            tune
            for tune, name in enumerate(self._library.names)
            if has_words(name.casefold(), contains or "")
        ]
        page = found[offset : offset + limit]
        return len(found), [self._entry(tune, modality or "sheet") for tune in page]

    def entry(self, id: str) -> Entry:
        """One tune."""
        return self._entry(self._number(id), "sheet")

    def media(self, kind: str, id: str) -> Media:
        """The staff of a tune as PNG, or its sound as WAV."""
        tune = self._number(id)
        self.check()
        if kind == "staff":
            return Media(self._library.staff_png(tune), "image/png")
        if kind == "audio":
            return Media(self._sound(tune), "audio/wav")
        raise UnknownItemError(f"The item has no {kind}.")

    def points(self) -> dict[str, Any]:
        """A map of the tunes, by the mean of their snippets in each modality."""
        self.check()
        return self._points()

    def evaluation(self) -> Evaluation | None:
        """What is known of the model's quality."""
        return self._evaluation

    def warm(self) -> None:
        """Run the networks once, which makes them ready."""
        if len(self._library):
            self._library.identify_sheet(self._staff(0), k=1)

    def close(self) -> None:
        """Nothing is held that has to be let go."""

    def _answer(self, question: Question) -> Answer:
        data, item = question.data, None
        if question.kind == "item":
            tune = self._number(data)
            item = self._entry(tune, question.modality)
            heard = question.modality == "audio"
            data = _samples(self._sound(tune)) if heard else self._staff(tune)
        if question.modality == "audio":
            found = self._library.identify(data, k=question.k)
        else:
            found = self._library.identify_sheet(np.asarray(data), k=question.k)
        return Answer(question, [self._found(m, question.within) for m in found], item=item)

    def _found(self, match: TuneMatch, modality: str) -> Entry:
        place = {"columns": match.columns, "seconds": match.seconds, "path": match.path}
        return self._entry(match.tune, modality, match.score, place)

    def _entry(
        self,
        tune: int,
        modality: str,
        score: float | None = None,
        place: Mapping[str, Any] | None = None,
    ) -> Entry:
        stored = self._library.store.tunes[tune]
        width, duration = self._width(tune), (stored.audio[1] - stored.audio[0]) / FRAME_RATE
        whole = {"columns": (0.0, float(width)), "seconds": (0.0, duration), "path": []}
        size = {"width": width, "scale": self._scale, "duration": round(duration, 3)}
        card = Card(
            f"tune-{tune}",
            modality,
            modality,
            short(stored.name, 200),
            {"source": stored.source, "key": stored.key},
            media=("staff", "audio"),
        )
        return Entry(card, score, place={**(place or whole), **size})

    def _number(self, id: str) -> int:
        match = _ID.fullmatch(id)
        if match is None or int(match[1]) >= len(self._library):
            raise UnknownItemError(f"There is no item {short(id, 200)!r}.")
        return int(match[1])

    def _width(self, tune: int) -> int:
        first, last = self._library.store.tunes[tune].sheet
        return last - first

    def _staff(self, tune: int) -> Any:
        return np.ascontiguousarray(self._library.store.tune(tune).sheet.T)

    def _sound(self, tune: int) -> bytes:
        with self._guard:
            if tune in self._sounds:
                self._sounds.move_to_end(tune)
                return self._sounds[tune]
        made = self._library.wav(tune)
        with self._guard:
            self._sounds[tune] = made
            while len(self._sounds) > _KEPT:
                self._sounds.popitem(last=False)
        return made

    def _read_points(self) -> dict[str, Any]:
        chosen = evenly(len(self._library), POINTS // 2)
        tunes = [tune for _ in _OTHER for tune in chosen]
        modalities = [name for name in _OTHER for _ in chosen]
        means = np.concatenate([_means(self._library, name, chosen) for name in _OTHER])
        return {
            "total": 2 * len(self._library),
            "ids": [f"tune-{tune}" for tune in tunes],
            "modalities": modalities,
            "kinds": modalities,
            "labels": [short(self._library.store.tunes[tune].name, 80) for tune in tunes],
            **plane(means, modalities),
        }


def _check_modality(name: str | None) -> None:
    if name not in (None, *_OTHER):
        raise InputError(f"The collection has sheet and audio, no {short(str(name), 40)!r}.")


def _means(library: TuneLibrary, modality: str, tunes: Sequence[int]) -> Vectors:
    """The mean vector (n, d) of the positions of each of n tunes."""
    tunes_of, vectors = library.positions["tune"], library.vectors[modality]
    bounds = np.searchsorted(tunes_of, np.arange(len(library) + 1)).tolist()
    return np.stack([vectors[bounds[tune] : bounds[tune + 1]].mean(0) for tune in tunes])


def _width_of(png: bytes) -> int:
    """The width that stands in a PNG's header."""
    return int.from_bytes(png[16:20], "big")


def _samples(sound: bytes) -> tuple[Any, int]:
    module = require("soundfile", extra="music", purpose="Reading audio")
    samples, rate = module.read(BytesIO(sound), dtype="float32")
    return samples, int(rate)
