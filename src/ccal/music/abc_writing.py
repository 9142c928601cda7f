"""Notes in time as ABC: bars, ties, triplets, beams and accidentals are worked out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeVar

from ccal.music.abc import ACCOMPANIMENT, altered_by_key
from ccal.music.score import Pitch, Sounding

_KEYS = ("Cb", "Gb", "Db", "Ab", "Eb", "Bb", "F", "C", "G", "D", "A", "E", "B", "F#", "C#")
_SIGNS = {-2: "__", -1: "_", 0: "=", 1: "^", 2: "^^"}
_BARS_A_LINE = 4


@dataclass(frozen=True)
class Chord:
    """Notes struck together, held from `start` to `end` in quarter notes; none for a rest.

    A `tied` one goes on in the next; a `continued` one goes on from the one before.
    """

    start: Fraction
    end: Fraction
    pitches: tuple[Pitch, ...] = ()
    tied: bool = False
    continued: bool = False

    def cut(self, at: Fraction) -> list[Chord]:
        """Both parts, tied, or the whole if `at` is not inside.

        >>> [len(Chord(Fraction(1), Fraction(3)).cut(Fraction(at))) for at in (1, 2, 3)]
        [1, 2, 1]
        """
        if not self.start < at < self.end:
            return [self]
        return [replace(self, end=at, tied=True), replace(self, start=at, continued=True)]


def write_abc(
    name: str,
    chords: Sequence[Chord],
    *,
    metres: Sequence[tuple[Fraction, str]],
    signatures: Sequence[tuple[Fraction, int]],
    start: Fraction,
    accompaniment: Sequence[Sounding] = (),
    tempo: float | None = None,
) -> str:
    """A tune in ABC, of chords in order of time that do not overlap.

    The music begins at `start`, with a rest if no chord does. `metres` ("6/8") and `signatures`
    (sharps, or flats if negative) hold from their times on, the first ones from the beginning.
    `tempo` is in quarter notes a minute.

    >>> three, five, seven = map(Fraction, (3, 5, 7))
    >>> chords = [Chord(three, five, (Pitch("a", 4, 0),)), Chord(five, seven, (Pitch("f", 4, 0),))]
    >>> print(write_abc("Air", chords, metres=[(0, "4/4")], signatures=[(0, 1)], start=three))
    X:1
    T:Air
    M:4/4
    L:1/4
    K:G
    A- | A=F2 |
    <BLANKLINE>
    """
    pieces = _without_gaps(chords, start)
    held: list[str] = []
    before = (metres[0][1], signatures[0][1])
    for first, last, metre in _bars(metres, start, pieces[-1].end):
        inside, pieces = _until(last, pieces)
        # A signature that changes within a bar holds from the next.
        fifths = value_at(signatures, first)
        fields = f"[M:{metre}]" if metre != before[0] and held else ""
        fields += f"[K:{key_text(fifths)}]" if fifths != before[1] and held else ""
        if not held:
            head = f"M:{metre}\nL:1/4\nK:{key_text(fifths)}\n"
        held.append(fields + _bar(inside, first, metre, fifths))
        before = (metre, fifths)
    lines = [held[i : i + _BARS_A_LINE] for i in range(0, len(held), _BARS_A_LINE)]
    music = "".join(" | ".join(line) + " |\n" for line in lines)
    return f"X:1\nT:{name}\n{tempo_text(tempo)}{_directives(accompaniment)}{head}{music}"


def tempo_text(tempo: float | None) -> str:
    r"""A line `Q:` for so many quarter notes a minute, or nothing.

    >>> tempo_text(208.0)
    'Q:1/4=208\n'
    """
    return "" if tempo is None else f"Q:1/4={round(tempo, 1):g}\n"


Value = TypeVar("Value")


def value_at(changes: Sequence[tuple[Fraction, Value]], time: Fraction) -> Value:
    """The value of the last change until `time`, or else of the first.

    >>> value_at([(Fraction(1), "2/4"), (Fraction(3), "3/4")], Fraction(3))
    '3/4'
    """
    return [changes[0][1], *(value for at, value in changes if at <= time)][-1]


def key_text(fifths: int) -> str:
    """The major key of a signature, for a `K:` field.

    >>> key_text(2), key_text(-1)
    ('D', 'F')
    """
    return _KEYS[fifths + 7]


def pitch_text(pitch: Pitch, signs: dict[tuple[str, int], int], fifths: int) -> str:
    """A note without length, with its sign where one is needed.

    `signs` are the accidentals of the bar so far, and get a new one.

    >>> signs: dict[tuple[str, int], int] = {}
    >>> [pitch_text(Pitch("f", octave, 0), signs, fifths=1) for octave in (5, 5, 3)]
    ['=f', 'f', '=F,']
    """
    step, octave = pitch.step, pitch.octave
    sign = ""
    if pitch.alter != signs.get((step, octave), altered_by_key(step, fifths)):
        sign, signs[step, octave] = _SIGNS[pitch.alter], pitch.alter
    return sign + (step + "'" * (octave - 5) if octave >= 5 else step.upper() + "," * (4 - octave))


def length_text(length: Fraction) -> str:
    """A multiple of the unit of length.

    >>> length_text(Fraction(1)), length_text(Fraction(3)), length_text(Fraction(3, 2))
    ('', '3', '3/2')
    """
    return "" if length == 1 else str(length)


def spelled(keys: Sequence[int], fifths: int) -> list[Pitch]:
    """Keys (MIDI) as notes, each on a line of its own, with few accidentals in the key.

    >>> [f"{p.step}{p.alter:+d}" for p in spelled([61, 66, 70], fifths=0)]
    ['c+1', 'f+1', 'b-1']
    >>> [f"{p.step}{p.alter:+d}" for p in spelled([65, 66], fifths=0)]
    ['f+0', 'g-1']
    """
    found: dict[tuple[str, int], Pitch] = {}
    for key in sorted(keys):
        # On the line of fifths (c is 0), a key uses the notes from 3 below its tonic to 8 above.
        usual = (7 * key - (fifths - 3)) % 12 + fifths - 3
        for fifth in (usual, usual - 12, usual + 12):
            step, alter = "fcgdaeb"[(fifth + 1) % 7], (fifth + 1) // 7
            octave = (key - alter) // 12 - 1
            if (step, octave) not in found and abs(alter) <= 2:
                found[step, octave] = Pitch(step, octave, alter)
                break
    return list(found.values())


def _directives(sounds: Sequence[Sounding]) -> str:
    """The keys of an accompaniment, those held together on one line."""
    chords: dict[tuple[Fraction, Fraction], list[int]] = {}
    for sound in sounds:
        chords.setdefault((sound.start, sound.length), []).append(sound.midi)
    return "".join(
        f"{ACCOMPANIMENT} {start} {length} {' '.join(map(str, sorted(keys)))}\n"
        for (start, length), keys in sorted(chords.items())
    )


def _without_gaps(chords: Sequence[Chord], start: Fraction) -> list[Chord]:
    """The chords, and rests where there are none."""
    found: list[Chord] = []
    now = start
    for chord in chords:
        if now < chord.start:
            found.append(Chord(now, chord.start))
        found.append(chord)
        now = chord.end
    # A rest completes a triplet at the end.
    return found if _dyadic(now) else [*found, Chord(now, Fraction(math.ceil(now)))]


def _bars(
    metres: Sequence[tuple[Fraction, str]], start: Fraction, end: Fraction
) -> Iterator[tuple[Fraction, Fraction, str]]:
    """Start, end and metre of the bars from `start` to `end`; a new metre begins a new bar."""
    now = Fraction(0)
    while now < end:
        metre = value_at(metres, now)
        count, unit = map(int, metre.split("/"))
        last = min([now + Fraction(4 * count, unit), *(at for at, _ in metres if at > now)])
        if last > start:
            yield now, last, metre
        now = last


def _until(end: Fraction, pieces: list[Chord]) -> tuple[list[Chord], list[Chord]]:
    """The pieces before `end`, and those from it on; one in between is cut."""
    count = next((i for i, piece in enumerate(pieces) if piece.end > end), len(pieces))
    inside, rest = pieces[:count], pieces[count:]
    if rest and rest[0].start < end:
        one, other = rest[0].cut(end)
        return [*inside, one], [other, *rest[1:]]
    return inside, rest


def _bar(pieces: list[Chord], start: Fraction, metre: str, fifths: int) -> str:
    """The notes of a bar; a space separates beams."""
    parts = [part for piece in pieces for part in _at_beats(piece)]
    short = any(part.pitches and part.end - part.start < Fraction(1, 2) for part in parts)
    beam = _beam(metre, short)
    signs: dict[tuple[str, int], int] = {}
    text, last = "", None
    # The notes that are still to come of a triplet.
    in_triplet = 0
    for i, part in enumerate(parts):
        group = (part.start - start) // beam
        text += " " if last is not None and group != last else ""
        last = group
        if not in_triplet and not _dyadic(part.end):
            in_triplet = 1 + next(j for j, later in enumerate(parts[i:]) if _dyadic(later.end))
            text += f"(3:2:{in_triplet}"
        length = part.end - part.start
        text += _chord(part, length * Fraction(3, 2) if in_triplet else length, signs, fifths)
        in_triplet -= in_triplet > 0
    return text


def _at_beats(piece: Chord) -> list[Chord]:
    """A piece, cut so that a triplet ends with a beat where it can."""
    first, last = Fraction(math.ceil(piece.start)), Fraction(math.floor(piece.end))
    long = piece.end - piece.start > 1
    parts = [piece]
    if not _dyadic(piece.start) and (_dyadic(piece.end) or long):
        parts = piece.cut(first)
    if not _dyadic(piece.end) and (_dyadic(piece.start) or long):
        parts = [*parts[:-1], *parts[-1].cut(last)]
    return parts


def _beam(metre: str, short: bool) -> Fraction:
    """Quarter notes under one beam; fewer if there are notes as `short` as sixteenths."""
    count, unit = map(int, metre.split("/"))
    if unit >= 8 and count % 3 == 0:
        return Fraction(12, unit)
    return Fraction(2 if metre in ("4/4", "2/2") and not short else 1)


def _chord(part: Chord, length: Fraction, signs: dict[tuple[str, int], int], fifths: int) -> str:
    """One note, chord or rest; where one goes on, a tie keeps its accidental."""
    if not part.pitches:
        return f"z{length_text(length)}"
    heads = [
        pitch_text(p, {(p.step, p.octave): p.alter} if part.continued else signs, fifths)
        for p in part.pitches
    ]
    notes = heads[0] if len(heads) == 1 else f"[{''.join(heads)}]"
    return f"{notes}{length_text(length)}{'-' if part.tied else ''}"


def _dyadic(value: Fraction) -> bool:
    return value.denominator & (value.denominator - 1) == 0
