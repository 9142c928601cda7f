"""Tunes played by other programs than ours: abc2midi makes MIDI of ABC, fluidsynth makes it sound.

With the Debian packages `abcmidi`, `fluidsynth`, `fluid-soundfont-gm` and
`musescore-general-soundfont-small`, neither the reading of the notation nor the instruments are
those of the package.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import soundfile  # type: ignore[import-untyped]
from numpy.typing import NDArray

from ccal.music import parse_abc

RATE = 22050
SOUND_FONT = "/usr/share/sounds/sf2/FluidR3_GM.sf2"
_MUSESCORE = "/usr/share/sounds/sf3/MuseScore_General_Lite.sf3"
# How much the tempo of free playing changes from bar to bar, as a logarithm.
_FREE = 0.12
_NAMES = {
    21: "accordion",
    23: "concertina",
    25: "guitar",
    40: "fiddle",
    73: "flute",
    78: "whistle",
    105: "banjo",
}
_LETTERS, _NATURAL = "CDEFGAB", (0, 2, 4, 5, 7, 9, 11)
_SHARPENED = "FCGDAEB"


@dataclass(frozen=True)
class Playing:
    """How a tune is played.

    Args:
        programs: instruments of General MIDI that play the melody, one behind the other.
        tempo: quarter notes a minute; None for the usual tempo of the dance.
        pace: factor of the tempo.
        shift: semitones by which it sounds higher than it is written.
        chords: whether a guitar plays a chord and a bass in every bar.
        drums: whether there are drums.
        stopped: whether the open string D sounds with the first note of each group.
        ornaments: whether notes that two more follow in their group have grace notes before them.
        free: whether the tempo changes from bar to bar.
        cents: hundredths of a semitone by which everything sounds higher.
        noise: decibels by which white noise is softer than the sound.
        room: seconds in which the echo of a room falls by 60 dB.
        talk: seconds of something like speech before the tune.
        crowd: decibels by which people who talk meanwhile are softer than the sound.
        sound_font: the file of the instruments.
    """

    programs: tuple[int, ...] = (40,)
    tempo: float | None = 120.0
    pace: float = 1.0
    shift: int = 0
    chords: bool = False
    drums: bool = False
    stopped: bool = False
    ornaments: bool = False
    free: bool = False
    cents: float = 0.0
    noise: float | None = None
    room: float | None = None
    talk: float = 0.0
    crowd: float | None = None
    sound_font: str = SOUND_FONT

    @property
    def instruments(self) -> str:
        """The instruments in words."""
        names = [_NAMES[program] for program in self.programs]
        return ", ".join([*names, *["chords"] * self.chords])


PLAYINGS = {
    "fiddle": Playing(),
    "flute": Playing((73,)),
    "accordion": Playing((21,)),
    "guitar": Playing((25,)),
    "banjo": Playing((105,)),
    "whistle, an octave up": Playing((78,), shift=12),
    "fiddle, guitar chords": Playing(chords=True),
    "fiddle, dance tempo": Playing(tempo=None),
    "flute, dance tempo": Playing((73,), tempo=None),
    "fiddle, 60% tempo": Playing(pace=0.6),
    "fiddle, 160% tempo": Playing(pace=1.6),
    "accordion, a fourth up": Playing((21,), shift=5),
    "fiddle, a fifth down": Playing(shift=-7),
    "flute, noise at 10 dB, room": Playing((73,), noise=10, room=1.5),
    "fiddle, flute and banjo, dance tempo": Playing((40, 73, 105), tempo=None),
    "banjo, chords, dance tempo, room": Playing((105,), tempo=None, chords=True, room=1.0),
    "fiddle, 4 s of talk before": Playing(talk=4),
    "fiddle, 30 cents flat": Playing(cents=-30),
    "fiddle, double stops, dance tempo": Playing(tempo=None, stopped=True),
    "flute, grace notes, dance tempo": Playing((73,), tempo=None, ornaments=True),
    "fiddle, slow and free": Playing(tempo=75, free=True),
    "concertina, people talking at 6 dB": Playing((23,), crowd=6),
    "whistle, guitar chords, drums, dance tempo": Playing(
        (78,), tempo=None, shift=12, chords=True, drums=True
    ),
    "flute, MuseScore's sounds, dance tempo": Playing((73,), tempo=None, sound_font=_MUSESCORE),
    "fiddle, guitar chords, MuseScore's sounds": Playing(chords=True, sound_font=_MUSESCORE),
}


def dance_tempo(abc: str) -> float:
    """Quarter notes a minute at which dances of this metre are played: reels 208, jigs 174."""
    metre = next((m for m in re.findall(r"^M:\s*(\S+)", abc, re.M)), "4/4")
    return {"6/8": 174.0, "9/8": 174.0, "12/8": 174.0, "3/4": 150.0, "2/4": 104.0}.get(metre, 208.0)


def record(abc: str, how: Playing, seconds: float, seed: list[int]) -> NDArray[np.float32]:
    """A piece of so many seconds (n,) of a tune, 22,050 samples a second, with a random start."""
    rng = np.random.default_rng(seed)
    tempo = (how.tempo or dance_tempo(abc)) * how.pace
    parts = []
    for number, program in enumerate(how.programs):
        own = _sound(abc, program, tempo, how if number == 0 else replace(how, chords=False))
        # Players are neither exactly together nor equally loud.
        late = round(0.02 * number * RATE)
        parts.append(0.8**number * np.concatenate([np.zeros(late, np.float32), own]))
    whole = np.zeros(max(map(len, parts)), dtype=np.float64)
    for part in parts:
        whole[: len(part)] += part
    length = round(max(seconds - how.talk, 1.0) * RATE)
    # What fluidsynth adds behind the last note is echo.
    start = int(rng.integers(max(1, len(whole) - 2 * RATE - length)))
    piece = whole[start : start + length]
    if how.cents:
        faster = 2 ** (how.cents / 1200)
        piece = np.interp(np.arange(0, len(piece) - 1, faster), np.arange(len(piece)), piece)
    if how.crowd is not None:
        said = talk(rng, len(piece) / RATE)
        piece = piece + 10 ** (-how.crowd / 20) * piece.std() / said.std() * said[: len(piece)]
    if how.talk:
        said = talk(rng, how.talk)
        piece = np.concatenate([said * (piece.std() / said.std()), piece])
    if how.room is not None:
        piece = _in_a_room(piece, how.room, rng)
    if how.noise is not None:
        level = float(np.sqrt((piece**2).mean())) * 10 ** (-how.noise / 20)
        piece = piece + level * rng.normal(size=len(piece))
    return np.asarray(piece, dtype=np.float32)


def talk(rng: np.random.Generator, seconds: float) -> NDArray[np.float64]:
    """Something like speech: syllables of a voice whose pitch glides, vowels and hisses."""
    parts: list[NDArray[np.float64]] = []
    while sum(len(part) for part in parts) < seconds * RATE:
        length = int(rng.uniform(0.08, 0.3) * RATE)
        time = np.arange(length) / RATE
        if rng.random() < 0.25:
            sound = np.diff(rng.normal(size=length + 1)) * 0.2
        else:
            pitch = rng.uniform(90, 220) * 2 ** (rng.uniform(-0.4, 0.4) * time / time[-1])
            phase = 2 * np.pi * np.cumsum(pitch) / RATE
            formants = rng.uniform([300, 900, 2200], [900, 2200, 3200])
            sound = np.zeros(length)
            for harmonic in range(1, 25):
                near = np.exp(-(((harmonic * pitch.mean() - formants) / 150) ** 2)).sum() + 0.02
                sound += near * np.sin(harmonic * phase)
        parts.append(sound * np.hanning(length) * rng.uniform(0.4, 1))
        parts.append(np.zeros(int(rng.exponential(0.06) * RATE)))
    return np.concatenate(parts)[: round(seconds * RATE)]


def _in_a_room(
    sound: NDArray[np.floating], seconds: float, rng: np.random.Generator
) -> NDArray[np.float64]:
    time = np.arange(round(seconds * RATE)) / RATE
    echo = rng.normal(size=len(time)) * 10 ** (-3 * time / seconds)
    echo *= 0.7 / np.sqrt((echo**2).sum())
    size = 1 << (len(sound) + len(echo)).bit_length()
    late = np.fft.irfft(np.fft.rfft(sound, size) * np.fft.rfft(echo, size), size)
    return np.asarray(sound + late[: len(sound)])


@lru_cache(maxsize=256)
def _sound(abc: str, program: int, tempo: float, how: Playing) -> NDArray[np.float32]:
    text = _with_chords(abc) if how.chords else re.sub(r'"[^"]*"', "", abc)
    head, (key, body) = _parts(re.sub(r"^Q:.*\n", "", text, flags=re.M))
    if how.ornaments:
        body = _in_notes(body, r"([A-Ga-g])(?=[A-Ga-g]{2})", r"{c}\1")
    if how.stopped:
        body = _in_notes(body, r"(?<=[\s|])([A-Ga-g])(?=[A-Ga-g])", r"[D\1]")
    if how.free:
        rng = np.random.default_rng(len(body))
        paces = iter(tempo * np.exp(np.clip(_FREE * rng.normal(size=1000).cumsum(), -0.3, 0.3)))
        body = _in_notes(body, r"\|(?=[A-Ga-g])", lambda _: f"|[Q:1/4={next(paces):.0f}]")
    lines = [f"%%MIDI program {program}", f"%%MIDI transpose {how.shift}"]
    lines += ["%%MIDI chordprog 25", "%%MIDI bassprog 25"] if how.chords else []
    lines += ["%%MIDI drum dzdd 36 42 42 90 60 70", "%%MIDI drumon"] if how.drums else []
    text = f"{head}Q:1/4={tempo:.0f}\n{key}" + "\n".join([*lines, body])
    with tempfile.TemporaryDirectory() as folder:
        source, midi, wave = (Path(folder) / f"tune.{kind}" for kind in ("abc", "mid", "wav"))
        source.write_text(text)
        subprocess.run(
            ["abc2midi", source, "-o", midi, *([] if how.chords else ["-NGUI"])],
            check=False,
            capture_output=True,
        )
        subprocess.run(
            ["fluidsynth", "-ni", "-F", wave, "-r", str(RATE), "-g", "0.5", how.sound_font, midi],
            check=True,
            capture_output=True,
            timeout=60,
        )
        samples, _ = soundfile.read(wave, dtype="float32", always_2d=True)
    return np.asarray(samples.mean(axis=1))


def _parts(abc: str) -> tuple[str, tuple[str, str]]:
    """The header before the key, the line of the key, and the notes."""
    first = re.search(r"^K:.*\n", abc, re.M)
    assert first is not None
    return abc[: first.start()], (first.group(), abc[first.end() :])


def _with_chords(abc: str) -> str:
    """The triad of the key that shares most notes with a bar, written before each bar."""
    score = parse_abc(abc)
    fifths = next((bar.fifths for bar in score.bars if bar.fifths is not None), 0)
    sharp = set(_SHARPENED[:fifths]) if fifths > 0 else set()
    flat = set(_SHARPENED[fifths:]) if fifths < 0 else set()
    pitch = {
        letter: n + (letter in sharp) - (letter in flat)
        for letter, n in zip(_LETTERS, _NATURAL, strict=True)
    }
    triads = {}
    for number, root in enumerate(_LETTERS):
        third, fifth = _LETTERS[(number + 2) % 7], _LETTERS[(number + 4) % 7]
        if (pitch[fifth] - pitch[root]) % 12 == 7:
            minor = "m" if (pitch[third] - pitch[root]) % 12 == 3 else ""
            sign = "#" if root in sharp else "b" if root in flat else ""
            triads[f"{root}{sign}{minor}"] = {root, third, fifth}
    head, (key, body) = _parts(abc)

    def bar(found: re.Match[str]) -> str:
        letters = [c.upper() for c in found.group() if c.upper() in _LETTERS]
        if len(letters) < 3:
            return found.group()
        best = max(triads, key=lambda name: sum(c in triads[name] for c in letters))
        return f'"{best}"{found.group()}'

    body = _in_notes(re.sub(r'"[^"]*"', "", body), r"[^|\[\]:\\!]{3,}", bar)
    return head + key + body


def _in_notes(body: str, pattern: str, by: str | Callable[[re.Match[str]], str]) -> str:
    """The notes of a tune with a pattern replaced in all lines but fields and comments."""
    lines = [
        line if re.match(r"^([A-Za-z]:|%)", line) else re.sub(pattern, by, line)
        for line in body.splitlines()
    ]
    return "\n".join(lines) + "\n"
