"""TuneLibrary: the tunes of a store, found by a recording or by a picture of their staff.

What was found: a tune, and where in it.

What can be wrong with a library, besides damage.

The sound of a tune of a store, to listen to.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccal.errors import InputError
from ccal.model import DualEncoder
from ccal.music import SheetAudioStore, parse_abc, synthesise
from ccal.music import library_files as files
from ccal.music.audio import FRAME_RATE
from ccal.music.embedding import MODALITIES, Embedder, count_strips, cut, places_of, strips_of
from ccal.music.identification import Axis, Way, find, staff_axis, time_axis
from ccal.music.pairs import FRAMES
from ccal.music.recordings import Recording, level_of, listen, moments
from ccal.music.sound import RENDER_RATE
from ccal.music.staff_pictures import Picture, read_staff, spots, staff_picture
from ccal.optional import require
from ccal.retrieval.embedding import fingerprint, unit_vectors
from ccal.retrieval.exact import nearest
from ccal.retrieval.items import OtherModelError

__all__ = ["OtherTunesError", "Snippet", "TuneLibrary", "TuneMatch", "wav"]


@dataclass(frozen=True)
class TuneMatch:
    """A tune of a library that a query resembles.

    Args:
        tune: its number in the library.
        name: its name.
        source: the file and the number that it came from.
        score: mean cosine along the way; 1 is best, and chance is near 0.
        columns: from where to where on the tune's staff line the query goes, in pixels.
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
    """A place of a tune, and the cosine of its snippet with a query's."""

    tune: int
    column: float
    second: float
    score: float


class OtherTunesError(InputError):
    """The library was made of other tunes than its store has now."""


def wav(store: SheetAudioStore, tune: int, seconds: tuple[float, float] | None = None) -> bytes:
    """A WAV file, 16 bits and one channel, of a tune, or of its seconds from..to."""
    abc = store.tunes[tune].abc
    if abc is None:
        raise InputError(
            f"the store {str(store.folder)!r} does not know how its tunes are written, as it was "
            "built by an earlier version; `ccal data build` (in Python, build_store) with the same "
            "tunes adds that."
        )
    settings = store.settings
    sound = synthesise(
        parse_abc(abc),
        sound_font=settings["sound_font"],
        program=settings["program"],
        tempo=settings["tempo"],
    )
    if seconds is not None:
        first, last = (round(second * RENDER_RATE) for second in seconds)
        if not 0 <= first < last:
            raise InputError(f"seconds must be from..to, got {seconds[0]:g} and {seconds[1]:g}.")
        sound = sound[first:last]
    # As loud as can be, but for a little.
    sound = sound * (0.9 / max(float(np.abs(sound).max(initial=0)), 1e-6))
    module = require("soundfile", extra="music", purpose="Writing audio")
    content = io.BytesIO()
    module.write(content, sound, RENDER_RATE, format="WAV", subtype="PCM_16")
    return content.getvalue()


Progress = Callable[[int, int], None]
# Frames between snippets of a recording, and columns between those of a picture.
_HOP, _PIXELS = 8, 10
# What is longer than 20 seconds, or about as much of staff, is compared piece by piece; what is
# longer than two minutes is heard in its first two.
_LONGEST, _WIDEST, _HEARD = 20 * FRAME_RATE, 800.0, round(120 * FRAME_RATE)


class TuneLibrary:
    """Embeddings of every place of every tune of a store, on its staff and in its sound.

    A library belongs to the model and to the store that it was made of, and refuses others. It is
    memory-mapped; a folder has a whole library or none. Tunes are numbered as in the store.
    `places` (n,) are the moments that can be found, and `vectors` (n, dim) of each modality theirs.
    """

    def __init__(
        self, folder: Path, about: dict[str, Any], embedder: Embedder, store: SheetAudioStore
    ) -> None:
        self.folder, self.store = folder, store
        self._about, self._embedder = about, embedder
        self.places = files.read_array(folder, about, "places")
        self.vectors = {name: files.read_array(folder, about, name) for name in MODALITIES}
        self._time = time_axis(self.places, len(store))
        self._staff = staff_axis(self.places, len(store), _PIXELS)

    @classmethod
    def build(
        cls,
        folder: str | PathLike[str],
        model: DualEncoder,
        store: SheetAudioStore,
        *,
        progress: Progress | None = None,
    ) -> Self:
        """Embed the tunes of a store into a folder, in place of what library is there.

        `progress` is called with the number of snippets done and their total.
        """
        where = Path(fspath(folder))
        embedder = Embedder(model)
        with files.writing(where):
            places = places_of(store)
            entries = {"places": files.write_array(where, "places", places.shape, [places])}
            for number, modality in enumerate(MODALITIES):
                strips = strips_of(store, modality, places)
                counted = count_strips(strips, number * len(places), 2 * len(places), progress)
                parts = (embedder.embed(modality, cut(s.values, s.middles)) for s in counted)
                shape = (len(places), embedder.dim)
                entries[modality] = files.write_array(where, modality, shape, parts)
            about = {
                "model": fingerprint(model),
                "store": store.manifest["hash"],
                "store_folder": os.path.relpath(store.folder, where),
                "level": level_of(store.audio[: 1 << 16]),
                "dim": embedder.dim,
                "places": len(places),
                "files": entries,
            }
            files.write_manifest(where, about)
        return cls(where, about, embedder, store)

    @classmethod
    def open(
        cls,
        folder: str | PathLike[str],
        model: DualEncoder,
        *,
        store: SheetAudioStore | None = None,
    ) -> Self:
        """Open a library with its own model; `store` says where its store is, if it has moved."""
        where = Path(fspath(folder))
        about = files.read_about(where)
        found = fingerprint(model)
        if found != about["model"]:
            raise OtherModelError(
                f"the library {str(where)!r} was made by another model (fingerprint "
                f"{about['model'][:12]}; this one has {found[:12]}). Open it with its own, or "
                "build it again with this one."
            )
        if store is None:
            place = (where / about["store_folder"]).resolve()
            if not place.is_dir():
                raise InputError(
                    f"the tunes of the library {str(where)!r} were in {str(place)!r}, which is "
                    "gone; say where they are with store=SheetAudioStore(...), or build both again."
                )
            store = SheetAudioStore(place)
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
        return f"TuneLibrary({len(self):,} tunes, {len(self.places):,} places)"

    def identify(self, audio: Recording, k: int = 10) -> list[TuneMatch]:
        """The k tunes that a recording resembles most, the best first.

        `audio` is the path of a WAV, FLAC, Ogg or MP3 file, or samples (n,) or (n, channels) and
        their rate. Three seconds are enough to try, ten to be sure.
        """
        heard = listen(audio, self._about["level"])[:_HEARD]
        middles = moments(heard, _HOP)
        queries = self._embedder.embed("audio", cut(heard, middles, mirrored=True))
        ways = self._find(queries, middles, "sheet", self._time, k, _LONGEST)
        return [self._match(way, middles, "frame", len(heard), 1 / FRAME_RATE) for way in ways]

    def identify_sheet(self, picture: Picture, k: int = 10) -> list[TuneMatch]:
        """The k tunes whose sound fits a picture of a staff line best, the best first.

        `picture` is the path of an image file or an array, of any size, see `read_staff`.
        """
        staff = read_staff(picture)
        middles = spots(staff, _PIXELS)
        queries = self._embedder.embed("sheet", cut(staff.ink, middles, mirrored=True))
        ways = self._find(queries, middles, "audio", self._staff, k, _WIDEST)
        return [self._match(way, middles, "column", len(staff.ink), staff.scale) for way in ways]

    def search_snippets(
        self, modality: Literal["sheet", "audio"], vectors: ArrayLike, k: int = 10
    ) -> list[list[Snippet]]:
        """For each of some vectors (n, dim) the k nearest snippets of a modality, best first."""
        if modality not in MODALITIES:
            raise InputError(f"snippets are of {' or '.join(MODALITIES)}, not of {modality!r}.")
        _check_k(k)
        queries = unit_vectors(vectors, self._about["dim"], "vectors")
        found = nearest(queries, self.vectors[modality].copy(), k)
        answers = []
        for cosines, rows in zip(found.cosines, found.positions, strict=True):
            best = np.lexsort((rows, -cosines))[:k]
            answers.append([self._snippet(int(rows[at]), float(cosines[at])) for at in best])
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
        """The sound of a tune as a WAV file: all, or from..to."""
        return wav(self.store, self._check(tune), seconds)

    def verify(self) -> None:
        """Read every byte; an error names the file that is not as it was written."""
        files.verify(self.folder, self._about)
        self.store.verify()

    def _find(
        self,
        queries: NDArray[np.float32],
        middles: NDArray[np.int64],
        modality: str,
        axis: Axis,
        k: int,
        longest: float,
    ) -> list[Way]:
        _check_k(k)
        return find(queries, middles, self.vectors[modality], axis, k=k, longest=longest)

    def _match(
        self, way: Way, middles: NDArray[np.int64], unit: str, length: int, scale: float
    ) -> TuneMatch:
        """A way as people see it; `middles` and `length` of the query are in frames or columns."""
        places, at = self.places[way.places], middles[way.snippets]
        own = self.places[slice(*self._time.bounds[way.tune : way.tune + 2])]
        # Beyond its outermost middles a query goes on for half a snippet, unless it ends before.
        first = places[unit][0] - min(FRAMES // 2, at[0])
        last = places[unit][-1] + min(FRAMES // 2, length - at[-1])
        column, frame = (np.interp([first, last], own[unit], own[n]) for n in ("column", "frame"))
        tune = self.store.tunes[way.tune]
        path = zip(at * scale, places["column"], places["frame"] / FRAME_RATE, strict=True)
        return TuneMatch(
            tune=way.tune,
            name=tune.name,
            source=tune.source,
            score=way.score,
            columns=(float(column[0]), float(column[1])),
            seconds=(float(frame[0]) / FRAME_RATE, float(frame[1]) / FRAME_RATE),
            path=[(float(q), float(c), float(s)) for q, c, s in path],
        )

    def _snippet(self, row: int, cosine: float) -> Snippet:
        place = self.places[row]
        second = float(place["frame"]) / FRAME_RATE
        return Snippet(int(place["tune"]), float(place["column"]), second, cosine)

    def _check(self, tune: int) -> int:
        if not 0 <= tune < len(self):
            raise InputError(f"the library has the tunes 0 to {len(self) - 1}, not {tune}.")
        return tune


def _check_k(k: int) -> None:
    if k < 1:
        raise InputError(f"k must be 1 or more, got {k}.")
