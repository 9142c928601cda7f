"""`TuneLibrary`: the tunes of a store, found by a recording or by a picture of their staff."""

import io
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
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
from ccal.music.embedding import MODALITIES, POSITION, Embedder, cut, positions_of
from ccal.music.identification import Alignment, rank_tunes, staff_axis, time_axis
from ccal.music.pairs import FRAMES
from ccal.music.pictures import staff_picture
from ccal.music.queries import Picture, Recording, level_of, listen, moments, read_staff, spots
from ccal.music.sound import RENDER_RATE, synthesise
from ccal.music.store import SheetAudioStore
from ccal.optional import require
from ccal.retrieval.embedding import fingerprint, unit_vectors
from ccal.retrieval.exact import nearest
from ccal.retrieval.items import DamagedIndexError, OtherModelError

MANIFEST, _FORMAT = "library.json", 1
_KEYS = ("model", "store", "store_folder", "level", "dim", "places", "files")
# Frames between snippets of a recording, and columns between those of a picture.
_HOP, _PIXELS = 8, 10
# A query of more than 20 seconds, or about as much of staff, is compared piece by piece. Only the
# first two minutes of a recording are used.
_LONGEST, _WIDEST, _HEARD = 20 * FRAME_RATE, 800.0, round(120 * FRAME_RATE)

Progress = Callable[[int, int], None]


class OtherTunesError(InputError):
    """The library was made of other tunes than its store has now."""


@dataclass(frozen=True)
class TuneMatch:
    """A tune of a library that a query resembles.

    Args:
        tune: its number in the library.
        name: its name.
        source: the file and the number that it came from.
        score: mean cosine along the alignment; 1 is best, and chance is near 0.
        columns: from which to which column of the tune's staff line the query goes, in pixels.
        seconds: from when to when in its sound, at the library's tempo.
        path: (second of the recording or column of the picture, column of the staff, second of the
            sound) for each snippet; none of the three ever falls.
    """

    tune: int
    name: str
    source: str
    score: float
    columns: tuple[float, float]
    seconds: tuple[float, float]
    path: list[tuple[float, float, float]]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Snippet:
    """A position of a tune, and the cosine of its snippet with a query's."""

    tune: int
    column: float
    second: float
    score: float


class TuneLibrary:
    """Embeddings of every position of every tune of a store, on its staff and in its sound.

    A library belongs to the model and to the store that it was made of, and refuses others. It is
    memory-mapped; a folder has a complete library or none. Tunes are numbered as in the store.
    `positions` (n,) are the moments that can be found, and `vectors` maps each modality to their
    embeddings (n, dim).
    """

    def __init__(
        self, folder: Path, about: dict[str, Any], embedder: Embedder, store: SheetAudioStore
    ) -> None:
        self.folder, self.store = folder, store
        self._about, self._embedder, self._files = about, embedder, _files(folder)
        count, dim = int(about["places"]), int(about["dim"])
        self.positions = self._files.array(about, "places", POSITION, (count,))
        self.vectors: dict[str, NDArray[np.float32]] = {
            name: self._files.array(about, name, np.float32, (count, dim)) for name in MODALITIES
        }
        self._time = time_axis(self.positions, len(store))
        self._staff = staff_axis(self.positions, len(store), _PIXELS)

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
            # On disk, positions are called places.
            entries = {"places": files.write_array("places", POSITION, (count,), [positions])}
            for done, modality in zip((0, count), MODALITIES, strict=True):
                rows = embedder.embed_tunes(modality, store, positions)
                counted = _counted(rows, done, 2 * count, progress)
                entries[modality] = files.write_array(modality, np.float32, (count, dim), counted)
            about = {
                "model": fingerprint(model),
                "store": store.manifest["hash"],
                "store_folder": os.path.relpath(store.folder, where),
                "level": level_of(store.audio[: 1 << 16]),
                "dim": dim,
                "places": count,
                "files": entries,
            }
            files.finish(about)
        return cls(where, about, embedder, store)

    @classmethod
    def open(
        cls,
        folder: str | PathLike[str],
        model: DualEncoder,
        *,
        store: SheetAudioStore | None = None,
    ) -> Self:
        """Open a library with its own model; `store` is needed only if the store has moved."""
        where = Path(fspath(folder))
        if not (where / MANIFEST).is_file():
            raise InputError(
                f"{str(where)!r} holds no finished library; TuneLibrary.build makes one."
            )
        about = _files(where).read(_KEYS)
        found = fingerprint(model)
        if found != about["model"]:
            raise OtherModelError(
                f"the library {str(where)!r} was made by another model (fingerprint "
                f"{about['model'][:12]}; this one has {found[:12]}). Open it with its own, or "
                "build it again with this one."
            )
        if store is None:
            original = (where / about["store_folder"]).resolve()
            if not original.is_dir():
                raise InputError(
                    f"the tunes of the library {str(where)!r} were in {str(original)!r}, which is "
                    "gone; say where they are with store=SheetAudioStore(...), or build both again."
                )
            store = SheetAudioStore(original)
        if store.manifest["hash"] != about["store"]:
            raise OtherTunesError(
                f"the library {str(where)!r} was made of other tunes than are now in "
                f"{str(store.folder)!r}; build it again."
            )
        return cls(where, about, Embedder(model), store)

    @property
    def names(self) -> list[str]:
        """The name of each tune."""
        return [tune.name for tune in self.store.tunes]

    def __len__(self) -> int:
        return len(self.store)

    def __repr__(self) -> str:
        return f"TuneLibrary({len(self):,} tunes, {len(self.positions):,} positions)"

    def identify(self, audio: Recording, k: int = 10) -> list[TuneMatch]:
        """The k tunes that a recording resembles most, the best first.

        `audio` is the path of a WAV, FLAC, Ogg or MP3 file, or samples (n,) or (n, channels) and
        their rate. Three seconds are enough to try, ten to be sure.
        """
        check("k", k, Whole(at_least=1))
        heard = listen(audio, self._about["level"])[:_HEARD]
        middles = moments(heard, _HOP)
        queries = self._embedder.embed("audio", cut(heard, middles, mirrored=True))
        vectors = self.vectors["sheet"]
        found = rank_tunes(queries, middles, vectors, self._time, k=k, longest=_LONGEST)
        return [self._match(a, middles, "frame", len(heard), 1 / FRAME_RATE) for a in found]

    def identify_sheet(self, picture: Picture, k: int = 10) -> list[TuneMatch]:
        """The k tunes whose sound fits a picture of a staff line best, the best first.

        `picture` is the path of an image file or an array, of any size, see `read_staff`.
        """
        check("k", k, Whole(at_least=1))
        staff = read_staff(picture)
        middles = spots(staff, _PIXELS)
        queries = self._embedder.embed("sheet", cut(staff.ink, middles, mirrored=True))
        vectors = self.vectors["audio"]
        found = rank_tunes(queries, middles, vectors, self._staff, k=k, longest=_WIDEST)
        return [self._match(a, middles, "column", len(staff.ink), staff.scale) for a in found]

    def search_snippets(
        self, modality: Literal["sheet", "audio"], vectors: ArrayLike, k: int = 10
    ) -> list[list[Snippet]]:
        """For each of some vectors (n, dim) the k nearest snippets of a modality, best first."""
        check("modality", modality, Options(*MODALITIES))
        check("k", k, Whole(at_least=1))
        queries = unit_vectors(vectors, self._about["dim"], "vectors")
        found = nearest(queries, self.vectors[modality], k)
        answers = []
        for cosines, rows in zip(found.cosines, found.positions, strict=True):
            best = np.lexsort((rows, -cosines))[:k]
            at = zip(self.positions[rows[best]].tolist(), cosines[best].tolist(), strict=True)
            answers.append([Snippet(t, x, frame / FRAME_RATE, c) for (t, x, frame), c in at])
        return answers

    def staff_png(
        self,
        tune: int,
        columns: tuple[float, float] | None = None,
        mark: tuple[float, float] | None = None,
    ) -> bytes:
        """The staff line of a tune as a PNG: all, or `columns` from..to, with `mark` in colour."""
        return staff_picture(self.store.tune(self._check(tune)).sheet, columns, mark)

    def wav(self, tune: int, seconds: tuple[float, float] | None = None) -> bytes:
        """The sound of a tune as a WAV file, 16 bits and one channel: all, or from..to."""
        abc, settings = self.store.tunes[self._check(tune)].abc, self.store.settings
        if abc is None:
            raise InputError(
                f"the store {str(self.store.folder)!r} was built by an earlier version, without "
                "the texts of its tunes; `ccal data build` (in Python, build_store) with the same "
                "tunes adds them."
            )
        wanted = {name: settings[name] for name in ("sound_font", "program", "tempo")}
        sound = synthesise(parse_abc(abc), **wanted)
        if seconds is not None:
            first, last = (round(second * RENDER_RATE) for second in seconds)
            if not 0 <= first < last:
                raise InputError(
                    f"seconds must be from..to, got {seconds[0]:g} and {seconds[1]:g}."
                )
            sound = sound[first:last]
        # Nearly as loud as a WAV file can be.
        sound = sound * (0.9 / max(float(np.abs(sound).max(initial=0)), 1e-6))
        module = require("soundfile", extra="music", purpose="Writing audio")
        content = io.BytesIO()
        module.write(content, sound, RENDER_RATE, format="WAV", subtype="PCM_16")
        return content.getvalue()

    def _match(
        self, found: Alignment, middles: NDArray[np.int64], unit: str, length: int, scale: float
    ) -> TuneMatch:
        """An alignment in columns and seconds.

        `middles` and `length` of the query are in frames or columns, as `unit` says; `scale` makes
        them seconds or pixels.
        """
        positions, at = self.positions[found.positions], middles[found.snippets]
        own = self.positions[slice(*self._time.bounds[found.tune : found.tune + 2])]
        # Beyond its outermost middles a query goes on for half a snippet, unless it ends before.
        first = positions[unit][0] - min(FRAMES // 2, at[0])
        last = positions[unit][-1] + min(FRAMES // 2, length - at[-1])
        column, frame = (np.interp([first, last], own[unit], own[n]) for n in ("column", "frame"))
        tune = self.store.tunes[found.tune]
        path = zip(at * scale, positions["column"], positions["frame"] / FRAME_RATE, strict=True)
        return TuneMatch(
            tune=found.tune,
            name=tune.name,
            source=tune.source,
            score=found.score,
            columns=(float(column[0]), float(column[1])),
            seconds=(float(frame[0]) / FRAME_RATE, float(frame[1]) / FRAME_RATE),
            path=[(float(q), float(c), float(s)) for q, c, s in path],
        )

    def _check(self, tune: int) -> int:
        if not 0 <= tune < len(self):
            raise InputError(f"the library has the tunes 0 to {len(self) - 1}, not {tune}.")
        return tune


def _files(folder: Path) -> ArrayFolder:
    return ArrayFolder(folder, MANIFEST, _FORMAT, kind="library", error=DamagedIndexError)


def _counted(
    rows: Iterable[NDArray[np.float32]], done: int, total: int, progress: Progress | None
) -> Iterator[NDArray[np.float32]]:
    """The same rows, part by part; `progress` is told when the next part is asked for."""
    for part in rows:
        yield part
        done += len(part)
        if progress is not None:
            progress(done, total)
