"""A score as MEI, the notation that the engraver reads best.

Note number i of the score (rests counted) has the id `n{i}`, and its heads `n{i}h{j}`. A length
that needs several notes, such as five quavers, is written as several tied ones.
"""

from collections.abc import Iterator
from fractions import Fraction
from itertools import groupby, pairwise

from ccal.errors import InputError
from ccal.music.score import Bar, Note, Score

_SIGNS = {-2: "ff", -1: "f", 0: "n", 1: "s", 2: "x"}
_SHORTEST = Fraction(1, 128)
_HEAD = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    '<mei xmlns="http://www.music-encoding.org/ns/mei" meiversion="5.0"><music><body><mdiv><score>'
)
_FOOT = "</section></score></mdiv></body></music></mei>"


def to_mei(score: Score) -> str:
    """The score as an MEI document of one staff with a treble clef."""
    ties = _ties(score)
    first = score.bars[0]
    parts = [
        f"{_HEAD}<scoreDef{_changes(first)}><staffGrp>"
        '<staffDef n="1" lines="5" clef.shape="G" clef.line="2"/></staffGrp></scoreDef><section>'
    ]
    number = 0
    for measure, bar in enumerate(score.bars):
        if measure and (changes := _changes(bar)):
            parts.append(f"<scoreDef{changes}/>")
        end = "end" if bar is score.bars[-1] else "invis" if bar.open else "single"
        layer = "".join(_groups(bar, number))
        behind = number + len(bar.notes)
        parts.append(
            f'<measure n="{measure + 1}" right="{end}"><staff n="1"><layer n="1">{layer}'
            f"</layer></staff>{''.join(ties[number:behind])}</measure>"
        )
        number = behind
    return "".join(parts) + _FOOT


def parts_of(length: Fraction) -> list[tuple[int, int]]:
    """A length in whole notes as (denominator, dots) of single notes, the longest first.

    >>> parts_of(Fraction(3, 8)), parts_of(Fraction(5, 8))
    ([(4, 1)], [(2, 0), (8, 0)])
    """
    parts: list[tuple[int, int]] = []
    rest = length
    while rest:
        if rest < _SHORTEST:
            raise InputError(f"it has a note of {length} of a whole note, which cannot be written.")
        # A longer note is several whole notes, tied.
        base = Fraction(1)
        while base > rest:
            base /= 2
        dots = next((dots for dots in (2, 1) if base * (2 - Fraction(1, 2**dots)) == rest), 0)
        parts.append((base.denominator, dots))
        rest -= base * (2 - Fraction(1, 2**dots))
    return parts


def _changes(bar: Bar) -> str:
    """Attributes of a new key or metre."""
    text = ""
    if bar.fifths is not None:
        text += f' keysig="{abs(bar.fifths)}{"s" if bar.fifths > 0 else "f" if bar.fifths else ""}"'
    if bar.metre is not None and bar.metre.startswith("C"):
        count, unit, sign = (4, 4, "common") if bar.metre == "C" else (2, 2, "cut")
        text += f' meter.count="{count}" meter.unit="{unit}" meter.sym="{sign}"'
    elif bar.metre is not None:
        count_, unit_ = bar.metre.split("/")
        text += f' meter.count="{count_}" meter.unit="{unit_}"'
    return text


def _groups(bar: Bar, first: int) -> Iterator[str]:
    """The notes of a bar, in tuplets and beams."""
    numbered = list(enumerate(bar.notes, start=first))
    for tuplet, members in groupby(numbered, key=lambda pair: pair[1].tuplet):
        inside = list(members)
        beams = "".join(_beams(inside))
        if tuplet is None:
            yield beams
        else:
            yield (
                f'<tuplet num="{tuplet.count}" numbase="{tuplet.time_of}" '
                f'num.visible="true" bracket.visible="false">{beams}</tuplet>'
            )


def _beams(notes: list[tuple[int, Note]]) -> Iterator[str]:
    """Numbered notes; short ones without space between them share a beam."""
    runs: list[list[str]] = []
    after_short = False
    for number, note in notes:
        short = bool(note.pitches) and note.length < Fraction(1, 4)
        if not (short and after_short and note.joined):
            runs.append([])
        runs[-1].append("".join(_written(number, note)))
        after_short = short
    for run in runs:
        yield run[0] if len(run) == 1 else f"<beam>{''.join(run)}</beam>"


def _written(number: int, note: Note) -> Iterator[str]:
    """One note, chord or rest, as one element or several that are tied."""
    for part, (unit, dots) in enumerate(parts_of(note.length)):
        name = _name(number, part)
        how_long = f' dur="{unit}"' + (f' dots="{dots}"' if dots else "")
        if not note.pitches:
            yield f'<rest xml:id="{name}"{how_long}/>'
            continue
        heads = []
        for j, pitch in enumerate(note.pitches):
            sign = f' accid.ges="{_SIGNS[pitch.alter]}"'
            if pitch.written is not None and part == 0:
                sign = f' accid="{_SIGNS[pitch.written]}"'
            heads.append(
                f'<note xml:id="{name}h{j}" pname="{pitch.step}" oct="{pitch.octave}"{sign}'
                f"{how_long if len(note.pitches) == 1 else ''}/>"
            )
        if len(heads) == 1:
            yield heads[0]
        else:
            yield f'<chord xml:id="{name}"{how_long}>{"".join(heads)}</chord>'


def _ties(score: Score) -> list[str]:
    """For each note the ties that begin at its heads."""
    ties = []
    notes = [note for _, note in score.notes()]
    for i, note in enumerate(notes):
        names = [_name(i, part) for part in range(len(parts_of(note.length)))]
        found = ""
        for j, pitch in enumerate(note.pitches):
            heads = [f"{name}h{j}" for name in names]
            if pitch.tied:
                goal = [other.midi for other in notes[i + 1].pitches].index(pitch.midi)
                heads.append(f"{_name(i + 1, 0)}h{goal}")
            for start, end in pairwise(heads):
                found += f'<tie startid="#{start}" endid="#{end}"/>'
        ties.append(found)
    return ties


def _name(number: int, part: int) -> str:
    return f"n{number}" if part == 0 else f"n{number}p{part}"
