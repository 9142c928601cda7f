"""MIDI as ABC: the melody becomes a tune like any other, and the other voices its accompaniment.

The notes of the melody are moved to the nearest sixteenth or triplet. Key and metre are those of
the file; where it has none, the key is the one with the fewest accidentals, and the metre 4/4.
The tempo is the one that holds longest; loudness, instruments, pedals and drums are left out.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

from ccal.errors import InputError
from ccal.music.abc import Tune, altered_by_key, signature
from ccal.music.abc_writing import Chord, spelled, value_at, write_abc
from ccal.music.score import Sounding
from ccal.optional import require

_Note = tuple[float, float, int]

SUFFIXES = (".mid", ".midi")
# Bytes, and quarter notes.
_LARGEST, _LONGEST = 10_000_000, 20_000
_DRUMS = 9
_MELODY = re.compile(r"\b(melod(y|ie|ia)|lead|vocals?|voice|solo)\b", re.IGNORECASE)
_NO_TITLE = re.compile(r"track|untitled|conductor|tempo", re.IGNORECASE)
# Notes a beat that notation programs write, and those that a player may have meant.
_WRITTEN, _PLAYED = (4, 6, 8, 12), (4, 3)
_EXACT, _NEAR = 1 / 96, 1 / 16
# Two voices of the same height, in semitones, could both be the melody.
_SAME_HEIGHT = 5


@dataclass(frozen=True)
class _Voice:
    """The notes of one channel of one track: (start, end, key), in quarter notes and in order."""

    name: str
    notes: list[_Note]

    @property
    def height(self) -> float:
        """The mean key."""
        return sum(key for _, _, key in self.notes) / len(self.notes)

    @property
    def single(self) -> bool:
        """Whether most notes begin when no other sounds."""
        overlaps = sum(after[0] < before[1] - _NEAR for before, after in pairwise(self.notes))
        return 2 * overlaps <= len(self.notes)


def read_midi(file: Path, melody: str | None = None) -> Tune:
    """A MIDI file as a tune; repeats are as the file plays them.

    `melody` is the number or the name of the voice with the melody. By default it is the one whose
    name says so, or else the highest that plays single notes. Raises `InputError` if the file
    cannot be read or has no melody.
    """
    content = _content(file)
    voices = _voices(content)
    chosen = _melody(voices, melody)
    metres, signatures = _changes(content)
    if not signatures:
        signatures = [(Fraction(0), _signature([key for _, _, key in chosen.notes]))]
    chords = [
        Chord(start, end, tuple(spelled(keys, value_at(signatures, start))))
        for start, end, keys in _quantised(chosen.notes)
    ]
    others = [
        (_nearest(start, 96), max(_nearest(end - start, 96), Fraction(1, 96)), key)
        for voice in voices
        if voice is not chosen
        for start, end, key in voice.notes
    ]
    begin = min([chords[0].start, *(start for start, _, _ in others)])
    accompaniment = [Sounding(start - begin, length, key) for start, length, key in others]
    name = _title(content) or file.stem
    abc = write_abc(
        name,
        chords,
        metres=metres or [(Fraction(0), "4/4")],
        signatures=signatures,
        start=begin,
        accompaniment=accompaniment,
        tempo=_tempo(content),
    )
    return Tune(abc, name, file.name)


def _content(file: Path) -> Any:
    """The file as mido reads it."""
    mido = require("mido", extra="music", purpose="Reading MIDI files")
    try:
        if file.stat().st_size > _LARGEST:
            raise ValueError(f"it is larger than {_LARGEST:,} bytes")
        if file.read_bytes()[:4] != b"MThd":
            raise ValueError("it does not begin with MThd")
        content = mido.MidiFile(file)
    # mido raises errors of many kinds for damaged files.
    except Exception as error:
        reason = str(error) or "it ends too early"
        raise InputError(f"it cannot be read as MIDI ({reason}).") from error
    if content.type == 2:
        raise InputError("it holds several pieces (MIDI of type 2), which are not supported.")
    if content.ticks_per_beat <= 0:
        raise InputError("its times are in frames of film (SMPTE), not in beats.")
    return content


def _voices(content: Any) -> list[_Voice]:
    """The voices that have notes, drums left out."""
    voices: list[_Voice] = []
    drums = 0
    for track in content.tracks:
        notes: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)
        held: dict[tuple[int, int], int] = {}
        now = 0
        for message in track:
            now += message.time
            if message.type not in ("note_on", "note_off"):
                continue
            struck = (message.channel, message.note)
            if struck in held:
                notes[message.channel].append((held.pop(struck), now, message.note))
            if message.type == "note_on" and message.velocity:
                held[struck] = now
        for (channel, key), start in held.items():
            notes[channel].append((start, now, key))
        for channel, found in sorted(notes.items()):
            drums += channel == _DRUMS
            quarter = content.ticks_per_beat
            heard = sorted((a / quarter, b / quarter, key) for a, b, key in found if a < b)
            if channel != _DRUMS and heard:
                voices.append(_Voice(_text(track.name), heard))
    if not voices:
        raise InputError("it has drums only, and no melody." if drums else "it has no notes.")
    last = max(end for voice in voices for _, end, _ in voice.notes)
    if last > _LONGEST:
        raise InputError(f"it lasts {last:,.0f} quarter notes, more than {_LONGEST:,}.")
    return voices


def _melody(voices: list[_Voice], wanted: str | None) -> _Voice:
    """The voice with the melody."""
    listed = ", ".join(
        f"{number} {voice.name!r} ({len(voice.notes)} notes)"
        for number, voice in enumerate(voices, start=1)
    )
    if wanted is not None:
        for number, voice in enumerate(voices, start=1):
            if wanted in (str(number), voice.name):
                return voice
        raise InputError(f"it has no voice {wanted!r}; it has {listed}.")
    named = [voice for voice in voices if _MELODY.search(voice.name)]
    if len(named) == 1:
        return named[0]
    candidates = [voice for voice in named or voices if voice.single] or named or voices
    best, *others = sorted(candidates, key=lambda voice: voice.height, reverse=True)
    if len(voices) == 1 and not best.single:
        raise InputError(
            "its only voice plays several notes at a time, so that the melody is not known; to "
            "write all its notes, choose it with --melody 1."
        )
    rivals = [v for v in others if v.single and best.height - v.height < _SAME_HEIGHT]
    if any(2 * len(voice.notes) >= len(best.notes) for voice in rivals):
        raise InputError(
            f"several voices could be the melody: {listed}; choose one with --melody, by its "
            "number or name."
        )
    return best


def _changes(content: Any) -> tuple[list[tuple[Fraction, str]], list[tuple[Fraction, int]]]:
    """Metres and signatures with their times, in order; of several at a time the last holds."""
    metres: dict[Fraction, str] = {}
    signatures: dict[Fraction, int] = {}
    for track in content.tracks:
        ticks = 0
        for message in track:
            ticks += message.time
            # To the sixteenth, since bars must be written.
            if message.type == "time_signature" and message.numerator:
                now = _nearest(ticks / content.ticks_per_beat, 4)
                metres[now] = f"{message.numerator}/{min(message.denominator, 32)}"
            elif message.type == "key_signature":
                now = _nearest(ticks / content.ticks_per_beat, 4)
                signatures[now] = signature(message.key)
    return sorted(metres.items()), sorted(signatures.items())


def _tempo(content: Any) -> float | None:
    """Quarter notes a minute for most of the file, or None if it says nothing."""
    changes: list[tuple[int, int]] = []
    last = 0
    for track in content.tracks:
        ticks = 0
        for message in track:
            ticks += message.time
            if message.type == "set_tempo" and message.tempo:
                changes.append((ticks, message.tempo))
        last = max(last, ticks)
    changes.sort()
    lasting: defaultdict[int, int] = defaultdict(int)
    for (start, tempo), end in zip(changes, [*(at for at, _ in changes[1:]), last], strict=False):
        lasting[tempo] += end - start
    return 60e6 / max(lasting, key=lambda tempo: lasting[tempo]) if lasting else None


def _signature(keys: Sequence[int]) -> int:
    """The signature with the fewest accidentals, and of those the one with the fewest signs.

    >>> _signature([62, 64, 66, 67, 69, 71, 73]), _signature([60, 62, 64, 65, 67])
    (2, 0)
    """

    def accidentals(fifths: int) -> int:
        pitches = (spelled([key], fifths)[0] for key in keys)
        return sum(pitch.alter != altered_by_key(pitch.step, fifths) for pitch in pitches)

    return min(range(-6, 7), key=lambda fifths: (accidentals(fifths), abs(fifths)))


def _quantised(notes: list[_Note]) -> list[tuple[Fraction, Fraction, tuple[int, ...]]]:
    """Start, end and keys of the chords, on the grid of each beat, one after the other.

    A chord ends where the next begins, at the latest; a short gap is not written as a rest.
    """
    grid = _grids([start for start, _, _ in notes])
    starts: dict[Fraction, dict[int, float]] = {}
    off = 0
    for start, stop, key in notes:
        at = _nearest(start, grid[_beat(start)])
        off += abs(at - start) > _NEAR
        keys = starts.setdefault(at, {})
        keys[key] = max(stop, keys.get(key, stop))
    if 4 * off > len(notes):
        raise InputError(
            f"its notes do not follow the beat: {off} of {len(notes)} are far from any sixteenth "
            "or triplet. It seems to be a performance; quantise it first."
        )
    chords = []
    order = sorted(starts)
    for at, following in zip(order, [*order[1:], None], strict=True):
        played = max(starts[at].values())
        end: Fraction = max(_nearest(played, _grid([played], (4,))), at + Fraction(1, 8))
        if following is not None:
            shortest_rest = max(0.25, float(following - at) / 4) - _EXACT
            end = following if following - played < shortest_rest else min(end, following)
        chords.append((at, end, tuple(sorted(starts[at]))))
    return chords


def _grids(starts: list[float]) -> dict[int, int]:
    """For each beat, into how many parts it is divided."""
    beats: defaultdict[int, list[float]] = defaultdict(list)
    for start in starts:
        beats[_beat(start)].append(start)
    return {beat: _grid(inside, _PLAYED) for beat, inside in beats.items()}


def _grid(times: list[float], played: Sequence[int]) -> int:
    """Into how many parts a beat with these times is divided: those of `played` if none fit."""

    def error(parts: int) -> float:
        return max(abs(round(time * parts) / parts - time) for time in times)

    written = (parts for parts in _WRITTEN if error(parts) <= _EXACT)
    return next(written, None) or min(played, key=error)


def _beat(time: float) -> int:
    """The quarter note that a time belongs to; one that is just before a beat belongs to it."""
    return int(time + _NEAR)


def _nearest(time: float, parts: int) -> Fraction:
    return Fraction(round(time * parts), parts)


def _title(content: Any) -> str:
    """The name of a first track without notes is that of the piece, unless programs gave it."""
    first, *others = content.tracks
    name = _text(first.name)
    has_notes = any(message.type == "note_on" for message in first)
    usable = name.isprintable() and not _NO_TITLE.search(name)
    return name if others and not has_notes and usable else ""


def _text(name: str) -> str:
    """A name without line breaks; mido reads text as Latin-1, which may have been UTF-8."""
    with suppress(UnicodeError):
        name = name.encode("latin-1").decode("utf-8")
    return " ".join(name.replace("\0", " ").split())
