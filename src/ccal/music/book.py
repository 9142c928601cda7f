"""`TuneBook`: tunes to see and to hear; `TuneLibrary` finds them."""

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccal.errors import InputError
from ccal.music.abc import parse_abc
from ccal.music.audio import FRAME_RATE
from ccal.music.engraving import draw, engrave
from ccal.music.pictures import staff_picture
from ccal.music.sound import RENDER_RATE, synthesise
from ccal.music.tunes import read_tunes, tempo_of
from ccal.optional import require


def play(file: str | PathLike[str]) -> tuple[NDArray[np.float32], int]:
    """A file of notation as sound: its one tune, played by a piano at its own tempo.

    Returns samples (n,) and their rate, as `TuneLibrary.identify` takes them.
    """
    first, *others = read_tunes(file)
    if others:
        raise InputError(
            f"{fspath(file)!r} holds {1 + len(others):,} tunes, and a search is for one. To search "
            "among them, give the file as the tune book (`ccal identify RECORDING --library FILE`)."
        )
    if first.problem is not None:
        raise InputError(f"{fspath(file)!r}: {first.problem}")
    try:
        return synthesise(parse_abc(first.abc), tempo=tempo_of(first.abc) or 120.0), RENDER_RATE
    except InputError as error:
        raise InputError(f"{fspath(file)!r}: {error}") from error


@dataclass(frozen=True)
class LibraryTune:
    """A tune of a library.

    `source` is the file and the number that it came from, `key` a hash of its notation, `tempo` its
    own, in quarter notes a minute; `columns` and `frames` are the lengths of its staff line and of
    its spectrogram, `positions` and `onsets` the numbers of its rows of these arrays. `abc` is its
    notation, if the library has it.
    """

    name: str
    source: str
    key: str
    tempo: float
    columns: int
    frames: int
    positions: int
    onsets: int
    abc: str | None = None


class TuneBook:
    """Tunes that are engraved and played when somebody asks for them.

    `settings` are those of `MusicSettings`; `onsets` (m,) are the notes of all tunes. `texts` gives
    the notation of a tune by its key where the tune has none.
    """

    def __init__(
        self,
        tunes: Sequence[LibraryTune],
        settings: Mapping[str, Any],
        onsets: NDArray[np.void],
        texts: Callable[[str], str] | None = None,
    ) -> None:
        self.tunes, self.settings, self.onsets = tunes, settings, onsets
        self._texts = texts
        self._ends = np.cumsum([0, *(tune.onsets for tune in tunes)])

    def __len__(self) -> int:
        return len(self.tunes)

    @property
    def names(self) -> list[str]:
        """The name of each tune."""
        return [tune.name for tune in self.tunes]

    def abc(self, tune: int) -> str:
        """The notation of a tune."""
        about = self.tunes[self._check(tune)]
        if about.abc is None and self._texts is not None:
            return self._texts(about.key)
        if about.abc is None:
            raise InputError(
                "the library was made of a store that an earlier version built, without the texts "
                "of its tunes; build both again."
            )
        return about.abc

    def notes(self, tune: int) -> NDArray[np.void]:
        """The onsets of a tune, rows of `ccal.music.rendering.ONSET`."""
        return self.onsets[self._ends[tune] : self._ends[tune + 1]]

    def staff(self, tune: int) -> NDArray[np.uint8]:
        """The staff line of a tune, (width, 40), engraved anew."""
        score = parse_abc(self.abc(tune))
        how = {name: self.settings[name] for name in ("space", "timeout")}
        return np.ascontiguousarray(engrave(score, **how).pixels.T)

    def staff_svg(self, tune: int) -> str:
        """The staff line of a tune as a drawing in SVG; its width is the columns of the tune."""
        how = {name: self.settings[name] for name in ("space", "timeout")}
        return draw(parse_abc(self.abc(tune)), **how)

    def staff_png(
        self,
        tune: int,
        columns: tuple[float, float] | None = None,
        mark: tuple[float, float] | None = None,
    ) -> bytes:
        """The staff line of a tune as a PNG: all, or `columns` from..to, with `mark` in colour."""
        return staff_picture(self.staff(tune), columns, mark)

    def wav(self, tune: int, seconds: tuple[float, float] | None = None) -> bytes:
        """The sound of a tune at its own tempo as a WAV file, 16 bits and one channel.

        All of it, or from..to.
        """
        font, program = self.settings["sound_font"], self.settings["program"]
        tempo = self.tunes[self._check(tune)].tempo
        score = parse_abc(self.abc(tune))
        sound = synthesise(score, sound_font=font, program=program, tempo=tempo)
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

    def seconds(self, tune: int, frames: ArrayLike) -> NDArray[np.float64]:
        """When frames of the spectrogram come in the sound of a tune, at its own tempo."""
        faster = self.tunes[tune].tempo / self.settings["tempo"]
        return np.asarray(np.asarray(frames, dtype=np.float64) / (FRAME_RATE * faster))

    def _check(self, tune: int) -> int:
        if not 0 <= tune < len(self):
            raise InputError(f"the library has the tunes 0 to {len(self) - 1}, not {tune}.")
        return tune
