"""A tune as notes in bars, and the time and pitch at which each sounds."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction

_SEMITONES = {"c": 0, "d": 2, "e": 4, "f": 5, "g": 7, "a": 9, "b": 11}


@dataclass(frozen=True)
class Pitch:
    """A note head; `alter` in semitones is heard, `written` is the sign before it, if any.

    A `tied` pitch goes on in the next note without a new attack.
    """

    step: str
    octave: int
    alter: int
    written: int | None = None
    tied: bool = False

    @property
    def midi(self) -> int:
        """Number of the key; 60 is middle c.

        >>> Pitch("c", 4, alter=1).midi
        61
        """
        return 12 * (self.octave + 1) + _SEMITONES[self.step] + self.alter


@dataclass(frozen=True)
class Tuplet:
    """`count` notes in the time of `time_of`; `number` tells one from the next."""

    number: int
    count: int
    time_of: int


@dataclass(frozen=True)
class Note:
    """Pitches of one stem, none for a rest.

    `length` is the written one in whole notes; a note of a `tuplet` sounds for a part of it. No
    space parts a `joined` note from the one before (one beam).
    """

    pitches: tuple[Pitch, ...]
    length: Fraction
    tuplet: Tuplet | None = None
    joined: bool = False

    @property
    def quarters(self) -> Fraction:
        """How long it sounds, in quarter notes."""
        if self.tuplet is None:
            return 4 * self.length
        return 4 * self.length * self.tuplet.time_of / self.tuplet.count


@dataclass
class Bar:
    """Notes up to a bar line, which is not drawn if `open`.

    Key and metre change before the notes where they are not None: `fifths` counts the sharps of a
    signature, or flats if negative; `metre` is such as "6/8" or "C".
    """

    notes: list[Note] = field(default_factory=list)
    fifths: int | None = None
    metre: str | None = None
    open: bool = False


@dataclass(frozen=True)
class Sounding:
    """One key held down: `start` and `length` in quarter notes."""

    start: Fraction
    length: Fraction
    midi: int


@dataclass(frozen=True)
class Score:
    """The bars of one voice, and the keys of an `accompaniment`: heard with it, but not written."""

    bars: list[Bar]
    accompaniment: list[Sounding] = field(default_factory=list)

    def notes(self) -> Iterator[tuple[Fraction, Note]]:
        """Each note and rest, with its start in quarter notes, in order."""
        now = Fraction(0)
        for bar in self.bars:
            for note in bar.notes:
                yield now, note
                now += note.quarters

    def sounding(self) -> list[Sounding]:
        """The written notes as they are heard, tied ones as one, in order of start.

        >>> held = Note((Pitch("c", 5, 0, tied=True),), Fraction(1, 4))
        >>> end = Note((Pitch("c", 5, 0),), Fraction(1, 8))
        >>> [(str(sound.length), sound.midi) for sound in Score([Bar([held, end])]).sounding()]
        [('3/2', 72)]
        """
        result: list[Sounding] = []
        held: dict[int, int] = {}
        for start, note in self.notes():
            still: dict[int, int] = {}
            for pitch in note.pitches:
                row = held.get(pitch.midi, len(result))
                if row == len(result):
                    result.append(Sounding(start, Fraction(0), pitch.midi))
                result[row] = replace(result[row], length=result[row].length + note.quarters)
                if pitch.tied:
                    still[pitch.midi] = row
            held = still
        return result

    def attacks(self) -> list[tuple[Fraction, int]]:
        """The onsets: start in quarter notes, and number of the note (rests counted) that begins.

        A note whose pitches are all tied over from the one before has no onset.
        """
        starts = {sound.start for sound in self.sounding()}
        return [
            (start, number)
            for number, (start, note) in enumerate(self.notes())
            if note.pitches and start in starts
        ]
