"""A score as sound, played by the samples of a sound font.

Its output must stay bit-identical (see `rendering`).
"""

import hashlib
import math
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ccal.errors import CcalError
from ccal.music.score import Score
from ccal.music.sound_font import SoundFont, Voice
from ccal.optional import install_command

RENDER_RATE = 44100
_VELOCITY = 90
_DEFAULT = "TimGM6mb.sf2"
# Seconds; a note is cut off where it has faded by 80 dB, or after this.
_LONGEST_RELEASE = 2.0


def default_sound_font() -> Path:
    """The sound font that is installed with the extra `music` as part of pretty_midi."""
    # Found without importing the package, which takes long.
    spec = find_spec("pretty_midi")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / _DEFAULT
        if path.is_file():
            return path
    raise CcalError(
        f"The sound font {_DEFAULT} of the package pretty_midi is missing; install it with: "
        f"{install_command('music')}, or give another .sf2 file as sound_font."
    )


def onset_seconds(score: Score, *, tempo: float = 120.0) -> NDArray[np.float64]:
    """Seconds of the onsets of `Score.attacks`; `tempo` is in quarter notes a minute."""
    return np.array([float(start) for start, _ in score.attacks()]) * 60.0 / tempo


def synthesise(
    score: Score, *, sound_font: str | None = None, program: int = 0, tempo: float = 120.0
) -> NDArray[np.float32]:
    """Sound (n,) of 44,100 samples a second, by the instrument `program` of General MIDI.

    It plays the accompaniment, too, if the score has one. `tempo` is in quarter notes a minute;
    program 0 is a grand piano.
    """
    path = _path(sound_font)
    second = RENDER_RATE * 60.0 / tempo
    notes = []
    for sound in [*score.sounding(), *score.accompaniment]:
        start, end = (round(float(t) * second) for t in (sound.start, sound.start + sound.length))
        notes.append((start, _note(path, program, sound.midi, max(1, end - start))))
    result = np.zeros(max(start + len(wave) for start, wave in notes), dtype=np.float32)
    for start, wave in notes:
        result[start : start + len(wave)] += wave
    return result


def sound_font_digest(sound_font: str | None) -> str:
    """A hash of the sound font's content."""
    path = _path(sound_font)
    _load(path)
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def _path(sound_font: str | None) -> str:
    return str(default_sound_font() if sound_font is None else sound_font)


@lru_cache(maxsize=2)
def _load(path: str) -> SoundFont:
    return SoundFont(path)


@lru_cache(maxsize=512)
def _note(path: str, program: int, key: int, length: int) -> NDArray[np.float32]:
    """One note held for `length` samples, and its release."""
    voices = _load(path).voices(program, key, _VELOCITY)
    note = np.zeros(length + max(map(_tail, voices), default=0), dtype=np.float32)
    for number, voice in enumerate(voices):
        end = length + _tail(voice)
        # Lengths are powers of two, so that one cached wave serves many notes.
        wave = _held(path, program, key, number, 1 << (end - 1).bit_length())
        fade = 10 ** (-5 / (voice.release * RENDER_RATE) * np.arange(end - length))
        # The two channels of a stereo instrument are two voices; their mean is one channel.
        note[:length] += wave[:length] / len(voices)
        note[length:end] += wave[length:end] * fade.astype(np.float32) / len(voices)
    return note


def _tail(voice: Voice) -> int:
    """Samples until the release of a note cannot be heard any more."""
    return math.ceil(min(voice.release * 0.8, _LONGEST_RELEASE) * RENDER_RATE)


# All tunes together have few different notes.
@lru_cache(maxsize=128)
def _held(path: str, program: int, key: int, number: int, length: int) -> NDArray[np.float32]:
    """The first `length` samples of one voice of a key that is held down."""
    voice = _load(path).voices(program, key, _VELOCITY)[number]
    at = np.arange(length) * (voice.speed / RENDER_RATE)
    if voice.loop is not None:
        first, last = voice.loop
        at = np.where(at < last, at, first + (at - first) % (last - first))
    floor = at.astype(np.int64)
    inside = floor < len(voice.samples) - 1
    floor = np.where(inside, floor, 0)
    low, high = voice.samples[floor], voice.samples[floor + 1]
    wave = np.where(inside, low + (at - floor) * (high.astype(np.float64) - low), 0.0)
    if voice.cutoff < RENDER_RATE / 2:
        # The magnitude of a filter of second order; its phase cannot be heard.
        frequencies = np.fft.rfftfreq(length, 1 / RENDER_RATE)
        spectrum = np.fft.rfft(wave) / np.sqrt(1 + (frequencies / voice.cutoff) ** 4)
        wave = np.fft.irfft(spectrum, length)
    return np.asarray(wave * (voice.gain / 32768) * _envelope(voice, length), dtype=np.float32)


def _envelope(voice: Voice, length: int) -> NDArray[np.float64]:
    """Amplitude (length,): a linear attack, a hold, an exponential decay to the sustained level."""
    time = np.arange(length) / RENDER_RATE
    attack = np.clip((time - voice.delay) / voice.attack, 0, 1)
    falling = np.maximum(0, time - voice.delay - voice.attack - voice.hold) / voice.decay
    return np.asarray(attack * np.maximum(10 ** (-5 * falling), voice.sustain))
