"""A tune in both modalities: its staff line and its spectrogram, onset by onset."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version

import numpy as np
from numpy.typing import NDArray

from ccal.errors import CcalError, InputError
from ccal.music.abc import parse_abc
from ccal.music.audio import FRAME_RATE, spectrogram
from ccal.music.engraving import engrave
from ccal.music.score import Score
from ccal.music.sound import RENDER_RATE, onset_seconds, sound_font_digest, synthesise

__all__ = ["ONSET", "MusicSettings", "RenderedTune", "render_tune"]

# One onset: columns of the head's left edge and centre in the staff line, frame of the spectrogram,
# highest new pitch (MIDI), start in 1/960 quarter notes.
ONSET = np.dtype(
    [("left", "<f4"), ("centre", "<f4"), ("frame", "<i4"), ("pitch", "<i2"), ("tick", "<i4")]
)
# Part of every hash; another way to draw or to hear must have another number.
_VERSION = 1


@dataclass(frozen=True)
class MusicSettings:
    """How tunes look and sound.

    Args:
        space: pixels from one line of the staff to the next.
        tempo: quarter notes a minute.
        program: instrument of General MIDI, 0 to 127; 0 is a grand piano.
        sound_font: path of an .sf2 file, or None for the one that comes with `ccal[music]`.
        timeout: seconds after which the engraver of one tune is given up.
    """

    space: float = 4.0
    tempo: float = 120.0
    program: int = 0
    sound_font: str | None = None
    timeout: float = 60.0

    def __post_init__(self) -> None:
        if not 1 <= self.space <= 10:
            raise InputError(f"space must be from 1 to 10 pixels, got {self.space}.")
        if not 20 <= self.tempo <= 400:
            raise InputError(f"tempo must be from 20 to 400 quarter notes a minute: {self.tempo}.")
        if not 0 <= self.program <= 127:
            raise InputError(f"program must be from 0 to 127, got {self.program}.")
        if self.timeout <= 0:
            raise InputError(f"timeout must be above 0 seconds, got {self.timeout}.")

    def digest(self) -> str:
        """A hash of all that a rendering depends on besides the tune."""
        parts = asdict(self) | {"sound_font": sound_font_digest(self.sound_font), "form": _VERSION}
        del parts["timeout"]
        try:
            parts |= {name: version(name) for name in ("verovio", "resvg_py")}
        except PackageNotFoundError as error:
            raise CcalError(
                f"Rendering tunes needs the package {error.name}; "
                "install it with: pip install 'ccal[music]'"
            ) from error
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class RenderedTune:
    """`sheet` (width, 40) uint8, black 0 on white 255; `audio` (frames, 136) float16; `onsets`.

    Time runs along the first axis of both, so that a snippet is one piece of memory.
    """

    sheet: NDArray[np.uint8]
    audio: NDArray[np.float16]
    onsets: NDArray[np.void]


def render_tune(
    abc: str, settings: MusicSettings | None = None, *, seconds: dict[str, float] | None = None
) -> RenderedTune:
    """Engrave and synthesise one tune; `seconds`, if given, gets the time of each stage.

    Raises `InputError` for a tune that cannot be read, engraved or heard.
    """
    settings = settings or MusicSettings()
    clock = [time.perf_counter()]
    score = parse_abc(abc)
    clock.append(time.perf_counter())
    staff = engrave(score, space=settings.space, timeout=settings.timeout)
    clock.append(time.perf_counter())
    sound = synthesise(
        score, sound_font=settings.sound_font, program=settings.program, tempo=settings.tempo
    )
    clock.append(time.perf_counter())
    audio = spectrogram(sound, RENDER_RATE).numpy().astype(np.float16)
    clock.append(time.perf_counter())
    if seconds is not None:
        seconds.update(
            zip(
                ("parse", "engrave", "synthesise", "spectrogram"),
                np.diff(clock).tolist(),
                strict=True,
            )
        )
    onsets = _onsets(score)
    onsets["left"], onsets["centre"] = staff.left, staff.centre
    onsets["frame"] = np.rint(onset_seconds(score, tempo=settings.tempo) * FRAME_RATE)
    return RenderedTune(np.ascontiguousarray(staff.pixels.T), audio, onsets)


def _onsets(score: Score) -> NDArray[np.void]:
    """A row an onset, with its pitch and its start."""
    highest: dict[int, int] = {}
    for sound in score.sounding():
        tick = round(sound.start * 960)
        highest[tick] = max(sound.midi, highest.get(tick, 0))
    onsets = np.zeros(len(score.attacks()), dtype=ONSET)
    onsets["tick"], onsets["pitch"] = list(highest), list(highest.values())
    return onsets
