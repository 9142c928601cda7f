"""`TuneLibrary`: the tunes of a store, found by a recording or by a page of sheet music."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccal.array_files import ArrayFolder
from ccal.bounds import Options, Whole, check
from ccal.errors import InputError
from ccal.files import alone_in
from ccal.model import DualEncoder
from ccal.music.abc import parse_abc
from ccal.music.audio import FRAME_RATE
from ccal.music.book import LibraryTune, TuneBook
from ccal.music.embedding import MODALITIES, POSITION, Embedder, positions_of
from ccal.music.hearing import KNOWN, Heard, Listener
from ccal.music.pages import Page, StaffLine, read_lines
from ccal.music.pairs import COLUMNS
from ccal.music.queries import Recording, level_of, listen
from ccal.music.reading import Heads, PageReader, Reading, heads_of
from ccal.music.rendering import ONSET
from ccal.music.store import SheetAudioStore
from ccal.music.tunes import tempo_of
from ccal.retrieval.embedding import fingerprint, unit_vectors
from ccal.retrieval.exact import nearest
from ccal.retrieval.items import DamagedIndexError, OtherModelError

MANIFEST, _FORMAT = "library.json", 2
_KEYS = ("model", "store", "settings", "skipped", "level", "dim", "tunes", "files")
_TUNE = ("name", "source", "key", "tempo", "columns", "frames", "positions", "onsets")
# Only the first two minutes of a recording are used.
_HEARD = round(120 * FRAME_RATE)

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class TuneMatch:
    """A tune of a library that a query resembles.

    Args:
        tune: its number in the library.
        name: its name.
        source: the file and the number that it came from.
        score: how well it fits, at most 1: of a recording, the share of the largest possible
            evidence along the alignment; of a page, the worth of a note head along it.
        confidence: the probability, from 0 to 1, that the query is of this tune.
        columns: from which to which column of the tune's staff line the query goes, in pixels.
        seconds: from when to when in its sound, as `TuneLibrary.wav` plays it.
        path: (second of the recording or column of the page's line with most notes, column of the
            staff, second of the sound) for each position that was found.
    """

    tune: int
    name: str
    source: str
    score: float
    confidence: float
    columns: tuple[float, float]
    seconds: tuple[float, float]
    path: list[tuple[float, float, float]]

    @property
    def known(self) -> bool:
        """Whether it is likely enough that the query is of this tune, and not of an unknown one."""
        return self.confidence >= KNOWN

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {**asdict(self), "known": self.known}


@dataclass(frozen=True)
class PageTune:
    """A tune on a page: the tunes of a library that it may be, best first, and its lines."""

    matches: list[TuneMatch]
    lines: list[StaffLine]


@dataclass(frozen=True)
class Snippet:
    """A position of a tune, and the cosine of its snippet with a query's."""

    tune: int
    column: float
    second: float
    score: float


class TuneLibrary(TuneBook):
    """Embeddings of every position of every tune, on its staff and in its sound.

    A library belongs to the model that it was made with, and refuses others. A folder has a
    complete library or none; nothing but the folder is needed to search and to show tunes.
    `positions` (n,) are the moments that can be found, `vectors` maps each modality to their
    embeddings (n, dim), and `onsets` (m,) are the notes. All frames are at one tempo, that of
    `settings`; seconds are at the tempo of each tune. `folder` is where it is (the first of a
    joined one), and `store_hash` names the tunes of its store.
    """

    def __init__(
        self,
        embedder: Embedder,
        about: Mapping[str, Any],
        tunes: Sequence[LibraryTune],
        arrays: Mapping[str, NDArray[Any]],
        folder: Path,
        texts: Callable[[str], str] | None = None,
    ) -> None:
        super().__init__(tunes, about["settings"], arrays["onsets"], texts)
        self.folder, self.positions = folder, arrays["positions"]
        self.vectors: dict[str, NDArray[np.float32]] = {name: arrays[name] for name in MODALITIES}
        self.level: float = about["level"]
        self.skipped = [(str(title), str(reason)) for title, reason in about["skipped"]]
        self.store_hash: str = about["store"]
        self._embedder = embedder

    @classmethod
    def build(
        cls,
        folder: str | PathLike[str],
        model: DualEncoder,
        store: SheetAudioStore,
        *,
        progress: Progress | None = None,
    ) -> Self:
        """Embed the tunes of a store into a folder; a library that is there is replaced.

        `progress` is called with the number of snippets done and their total.
        """
        where = Path(fspath(folder))
        embedder = Embedder(model)
        if where.exists() and not where.is_dir():
            raise InputError(f"a library is a folder, and {str(where)!r} is a file.")
        with alone_in(where):
            files, positions = _files(where), positions_of(store)
            count, dim = len(positions), embedder.dim
            tunes = _described(store, positions)
            rows = {"positions": (POSITION, [positions]), "onsets": (ONSET, [store.onsets])}
            entries = {
                name: files.write_array(name, dtype, (len(parts[0]),), parts)
                for name, (dtype, parts) in rows.items()
            }
            for done, modality in zip((0, count), MODALITIES, strict=True):
                made = embedder.embed_tunes(modality, store, positions)
                counted = _counted(made, done, 2 * count, progress)
                # In half precision a cosine is off by less than 0.001.
                entries[modality] = files.write_array(modality, np.float16, (count, dim), counted)
            about = {
                "model": fingerprint(model),
                "store": store.manifest["hash"],
                "settings": store.settings,
                "skipped": store.skipped,
                "level": level_of(store.audio[: 1 << 16]),
                "dim": dim,
                "tunes": [asdict(tune) for tune in tunes],
                "files": entries,
            }
            files.finish(about)
        return cls.open(where, model)

    @classmethod
    def open(
        cls,
        folder: str | PathLike[str],
        model: DualEncoder,
        *,
        texts: Callable[[str], str] | None = None,
    ) -> Self:
        """Open a library with its own model.

        `texts` gives the notation of a tune by its key, for a library that is without it.
        """
        where = Path(fspath(folder))
        if not (where / MANIFEST).is_file():
            raise InputError(
                f"{str(where)!r} holds no finished library; TuneLibrary.build makes one."
            )
        files = _files(where)
        about = files.read(_KEYS)
        found = fingerprint(model)
        if found != about["model"]:
            raise OtherModelError(
                f"the library {str(where)!r} was made by another model (fingerprint "
                f"{about['model'][:12]}; this one has {found[:12]}). Open it with its own, or "
                "build it again with this one."
            )
        tunes = [LibraryTune(**{k: t.get(k) for k in (*_TUNE, "abc")}) for t in about["tunes"]]
        count, notes = (sum(getattr(t, k) for t in tunes) for k in ("positions", "onsets"))
        shape, arrays = (count, int(about["dim"])), {}
        for name in MODALITIES:
            halves = files.array(about, name, np.float16, shape)
            arrays[name] = _units(halves.astype(np.float32))
        for name, dtype, length in (("positions", POSITION, count), ("onsets", ONSET, notes)):
            arrays[name] = np.array(files.array(about, name, dtype, (length,)))
        return cls(Embedder(model), about, tunes, arrays, where, texts)

    @classmethod
    def joined(cls, libraries: Sequence[Self]) -> Self:
        """Several libraries of one model as one, their tunes one after the other."""
        first, *others = libraries
        if not others:
            return first
        if any(one.settings["tempo"] != first.settings["tempo"] for one in others):
            raise InputError("libraries that were rendered at different tempi cannot be joined.")
        starts = np.cumsum([0, *(len(one) for one in libraries)]).tolist()
        parts = [one.positions.copy() for one in libraries]
        for part, start in zip(parts, starts, strict=False):
            part["tune"] += start
        arrays = {
            "positions": np.concatenate(parts),
            "onsets": np.concatenate([one.onsets for one in libraries]),
            **{name: np.concatenate([o.vectors[name] for o in libraries]) for name in MODALITIES},
        }
        about = {
            "store": "",
            "settings": first.settings,
            "skipped": [skipped for one in libraries for skipped in one.skipped],
            "level": first.level,
        }
        tunes = [tune for one in libraries for tune in one.tunes]
        # Only the library that comes with the package is without the texts of its tunes.
        texts = next((one._texts for one in libraries if one._texts), None)
        return cls(first._embedder, about, tunes, arrays, first.folder, texts)

    @cached_property
    def _bounds(self) -> NDArray[np.int64]:
        """Tune i has the positions from bounds[i] to before bounds[i + 1]."""
        return np.searchsorted(self.positions["tune"], np.arange(len(self) + 1))

    def __repr__(self) -> str:
        return f"TuneLibrary({len(self):,} tunes, {len(self.positions):,} positions)"

    def identify(self, audio: Recording, k: int = 10) -> list[TuneMatch]:
        """The k tunes that a recording resembles most, the best first.

        `audio` is the path of a WAV, FLAC, Ogg or MP3 file, or samples (n,) or (n, channels) and
        their rate. Three seconds are enough to try, ten to be sure.
        """
        check("k", k, Whole(at_least=1))
        heard = listen(audio, self.level)[:_HEARD]
        found = self.listener.identify(heard, k)
        return [self._match(heard) for heard in found]

    def identify_page(self, page: Page | list[StaffLine], k: int = 10) -> list[PageTune]:
        """The tunes on a page, from top to bottom: for each the k that fit its lines best.

        `page` is the path or the bytes of a picture or a PDF file, or an array, see `read_lines`;
        or the lines that it gave.
        Every line of the page counts, and one is enough.
        """
        check("k", k, Whole(at_least=1))
        lines = page if isinstance(page, list) else read_lines(page)
        return [
            PageTune([self._read(reading) for reading in best], [lines[n] for n in best[0].lines])
            for best in self.reader.identify(lines, k)
        ]

    def identify_sheet(self, picture: Page, k: int = 10) -> list[TuneMatch]:
        """The k tunes that fit a picture of one tune best: of a page, that with most lines."""
        return max(self.identify_page(picture, k), key=lambda found: len(found.lines)).matches

    @cached_property
    def reader(self) -> PageReader:
        """The search for pages in this library."""
        return PageReader(self._embedder, self.vectors, self._bounds, self._heads)

    @cache  # noqa: B019 - a library lives as long as its tunes are asked for.
    def _heads(self, tune: int) -> Heads:
        return heads_of(parse_abc(self.abc(tune)))

    def _read(self, reading: Reading) -> TuneMatch:
        """A reading in columns and seconds."""
        notes, places = self.notes(reading.tune), reading.places
        onsets = places[:, 2].astype(np.int64)
        columns = notes["centre"][onsets]
        seconds = self.seconds(reading.tune, notes["frame"][onsets])
        # The line with most notes shows the way.
        numbers = places[:, 0].astype(np.int64)
        longest = numbers == np.bincount(numbers, minlength=1).argmax()
        path = zip(places[longest, 1], columns[longest], seconds[longest], strict=True)
        tune, half = self.tunes[reading.tune], COLUMNS / 8
        return TuneMatch(
            tune=reading.tune,
            name=tune.name,
            source=tune.source,
            score=reading.score,
            confidence=reading.confidence,
            columns=(float(columns.min() - half), float(columns.max() + half)),
            seconds=(float(seconds.min()), float(seconds.max())),
            path=[(float(q), float(c), float(s)) for q, c, s in path],
        )

    def search_snippets(
        self, modality: Literal["sheet", "audio"], vectors: ArrayLike, k: int = 10
    ) -> list[list[Snippet]]:
        """For each of some vectors (n, dim) the k nearest snippets of a modality, best first."""
        check("modality", modality, Options(*MODALITIES))
        check("k", k, Whole(at_least=1))
        queries = unit_vectors(vectors, self._embedder.dim, "vectors")
        found = nearest(queries, self.vectors[modality], k)
        answers = []
        for cosines, rows in zip(found.cosines, found.positions, strict=True):
            best = np.lexsort((rows, -cosines))[:k]
            at = zip(self.positions[rows[best]].tolist(), cosines[best].tolist(), strict=True)
            found_here = [
                Snippet(t, x, float(self.seconds(t, frame)), c) for (t, x, frame), c in at
            ]
            answers.append(found_here)
        return answers

    @cached_property
    def listener(self) -> Listener:
        """The search for recordings in this library."""
        onsets = [self.notes(number) for number in range(len(self))]
        return Listener(self._embedder, self.vectors["sheet"], self._bounds, onsets)

    def _match(self, found: Heard) -> TuneMatch:
        """What was heard in columns and seconds."""
        positions, at = self.positions[found.positions], found.frames[found.snippets]
        seconds = self.seconds(found.tune, positions["frame"])
        tune = self.tunes[found.tune]
        path = zip(at / FRAME_RATE, positions["column"], seconds, strict=True)
        return TuneMatch(
            tune=found.tune,
            name=tune.name,
            source=tune.source,
            score=found.score,
            confidence=found.confidence,
            columns=(float(positions["column"][0]), float(positions["column"][-1])),
            seconds=(float(seconds[0]), float(seconds[-1])),
            path=[(float(q), float(c), float(s)) for q, c, s in path],
        )


def _files(folder: Path) -> ArrayFolder:
    return ArrayFolder(folder, MANIFEST, _FORMAT, kind="library", error=DamagedIndexError)


def _described(store: SheetAudioStore, positions: NDArray[Any]) -> list[LibraryTune]:
    """The tunes of a store, for a library with these positions."""
    counts = np.bincount(positions["tune"], minlength=len(store)).tolist()
    return [
        LibraryTune(
            name=tune.name,
            source=tune.source,
            key=tune.key,
            tempo=tempo_of(tune.abc or "") or float(store.settings["tempo"]),
            columns=tune.sheet[1] - tune.sheet[0],
            frames=tune.audio[1] - tune.audio[0],
            positions=count,
            onsets=tune.onsets[1] - tune.onsets[0],
            abc=tune.abc,
        )
        for tune, count in zip(store.tunes, counts, strict=True)
    ]


def _units(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def _counted(
    rows: Iterable[NDArray[np.float32]], done: int, total: int, progress: Progress | None
) -> Iterator[NDArray[np.float32]]:
    """The same rows, part by part; `progress` is told when the next part is asked for."""
    for part in rows:
        yield part
        done += len(part)
        if progress is not None:
            progress(done, total)
