from __future__ import annotations

import time
from fractions import Fraction

import pytest

from ccal.errors import InputError
from ccal.music import Score, parse_abc


def parse(music: str, key: str = "C", metre: str = "4/4") -> Score:
    return parse_abc(f"X:1\nM:{metre}\nL:1/8\nK:{key}\n{music}\n")


def heard(music: str, key: str = "C") -> list[int]:
    return [sound.midi for sound in parse(music, key).sounding()]


def lengths(music: str, metre: str = "4/4") -> list[Fraction]:
    """Sounding lengths in quavers."""
    return [sound.length * 2 for sound in parse(music, metre=metre).sounding()]


@pytest.mark.parametrize(
    ("music", "key", "pitches"),
    [
        ("C c c' C, C,,", "C", [60, 72, 84, 48, 36]),
        ("FCG", "D", [66, 61, 67]),
        ("FBE", "Eb", [65, 70, 63]),
        ("^F F f | F", "C", [66, 66, 77, 65]),
        ("=F F | F", "D", [65, 65, 66]),
        ("^^C __D", "C", [62, 60]),
        # An accidental goes over a tie, and no further.
        ("^F-|F F", "C", [66, 65]),
        ("[CEG]2 [Ec]", "C", [60, 64, 67, 64, 72]),
    ],
)
def test_pitches(music: str, key: str, pitches: list[int]) -> None:
    assert heard(music, key) == pitches


@pytest.mark.parametrize(
    ("music", "expected"),
    [
        ("C2 C C/2 C/ C// C3/2", [2, 1, "1/2", "1/2", "1/4", "3/2"]),
        ("C>D E<F G>>A", ["3/2", "1/2", "1/2", "3/2", "7/4", "1/4"]),
        ("C2>D2", [3, 1]),
        ("(3CDE F", ["2/3", "2/3", "2/3", 1]),
        ("(3:2:2C2D E", ["4/3", "2/3", 1]),
        ("[CE]2 [C3E3]", [2, 2, 3, 3]),
        ("C2-C | D-D2-|D", [3, 4]),
        # People write ties for slurs.
        ("C-D E", [1, 1, 1]),
        ('"G7"C{de}D!f!E ~F .G uA (BA)', [1] * 8),
        ("+fermata+C D!accent!E", [1] * 3),
        ("C:|:D|[1E:|[2F||", [1] * 4),
        ("C|1D:|2E|]", [1] * 3),
    ],
)
def test_lengths(music: str, expected: list[str | int]) -> None:
    assert lengths(music) == [Fraction(length) for length in expected]


def test_time_goes_on_through_rests_and_fields() -> None:
    score = parse("C z D2 x3 E\nL:1/4\nF\nM:2/4\nK:G\n F [L:1/8]G")
    assert [float(start) for start, _ in score.attacks()] == [0, 1, 3.5, 4, 5, 6]
    assert [sound.midi for sound in score.sounding()] == [60, 62, 64, 65, 66, 67]
    assert [(bar.fifths, bar.metre) for bar in score.bars] == [(0, "4/4"), (1, "2/4")]


def test_a_tied_note_has_no_onset_and_a_new_one_above_it_has() -> None:
    assert len(parse("C2-|C2").attacks()) == 1
    assert [number for _, number in parse("[C-E-]2 [CE]2").attacks()] == [0]
    score = parse("[C-E]2 [CF]2")
    assert [number for _, number in score.attacks()] == [0, 1]
    assert [(float(s.start), float(s.length)) for s in score.sounding()] == [(0, 2), (0, 1), (1, 1)]


def test_the_length_without_a_field_follows_from_the_metre() -> None:
    notes = parse_abc("X:1\nM:2/4\nK:C\nC").bars[0].notes
    assert notes[0].length == Fraction(1, 16)


@pytest.mark.parametrize(
    ("abc", "message"),
    [
        ("X:1\nK:C\n|: z4 :|", "no notes"),
        ("X:1\nT:No key\nCDE", "no key"),
        ("X:1\nK:Q\nC", "the key 'Q'"),
        ("X:1\nM:3/5\nK:C\nC", "the metre '3/5'"),
        ("X:1\nL:2\nK:C\nC", "unit of length '2'"),
        ("X:1\nK:C\nV:1\nC", "several voices"),
        ("X:1\nK:C\nC/0", "divided by zero"),
        ("X:1\nK:C\nC0", "no length"),
        ("X:1\nK:C\nZ4|C", "rests of several bars"),
    ],
)
def test_unreadable_abc_is_refused_with_the_reason(abc: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_abc(abc)


HEAD = "X:1\nM:4/4\nL:1/8\nK:C\n"


@pytest.mark.parametrize(
    ("abc", "message"),
    [
        (f"{HEAD}C999999999999|]", "more than 8 digits"),
        (f"{HEAD}C{'9' * 5000}|]", "more than 8 digits"),
        (f"{HEAD}C99999999|]", "whole notes"),
        (f"{HEAD}C/99999999|]", "whole notes"),
        (f"{HEAD}C{'/' * 90_000}D|]", "more than 8 digits or signs"),
        (f"{HEAD}C{'>' * 90_000}D|]", "more than 8 digits or signs"),
        (f"{HEAD}c{chr(39) * 90_000}|]", "more than 8 digits or signs"),
        (f"{HEAD}(3:2:999999999 CDE|]", "more than 8 digits"),
        (f"{HEAD}(3:2000:3 CDE|]", "numbers go to 99"),
        (f"{HEAD}{'C8|' * 30_000}", "longer than"),
        (f"{HEAD}{'C' * 90_000}", "more than 10,000 notes"),
        (f"{HEAD}{'|:' * 40_000}C{':|' * 40_000}", "characters of music"),
        (f"{HEAD}{'C' * 1_000_000}", "characters of music"),
        ("X:1\nM:999999999/4\nK:C\nC|]", "not one such as 6/8"),
        ("X:1\nL:1/999999999\nK:C\nC|]", "not one such as 1/8"),
        (f"{HEAD}c|]\n%%accompaniment 1e999999999 1 43", "not as expected"),
        (f"{HEAD}c|]\n%%accompaniment 1 999999 43", "not as expected"),
        *((f"{HEAD}{sign * 90_000}", "") for sign in ("+y", "{", "[", '"', "!", ":", "(", "[K:")),
        (f"{HEAD}+{'y' * 90_000}", "no notes"),
    ],
)
def test_absurd_notation_is_refused_at_once(abc: str, message: str) -> None:
    begun = time.process_time()
    with pytest.raises(InputError, match=message):
        parse_abc(abc)
    assert time.process_time() - begun < 1
