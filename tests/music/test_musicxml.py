"""MusicXML: a file by hand, and real ones against music21's own reader."""

from __future__ import annotations

import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from ccal.errors import InputError
from ccal.music import parse_abc, read_tunes


def note(
    step: str, octave: int, duration: int, *more: str, alter: int = 0, chord: bool = False
) -> str:
    sign = f"<alter>{alter}</alter>" if alter else ""
    return (
        f"<note>{'<chord/>' if chord else ''}<pitch><step>{step}</step>{sign}"
        f"<octave>{octave}</octave></pitch><duration>{duration}</duration>{''.join(more)}</note>"
    )


TRIPLET = (
    "<time-modification><actual-notes>3</actual-notes><normal-notes>2</normal-notes>"
    "</time-modification>"
)
START = '<notations><tuplet type="start"/></notations>'
BARS = [
    "<attributes><divisions>6</divisions><key><fifths>1</fifths></key>"
    "<time><beats>4</beats><beat-type>4</beat-type></time></attributes>"
    + note("F", 4, 6, alter=1)
    + note("F", 4, 6)
    + note("F", 4, 6, alter=1)
    + "<note><rest/><duration>6</duration></note>",
    note("C", 5, 6)
    + note("E", 5, 6, chord=True)
    + note("G", 4, 2, TRIPLET, START)
    + note("A", 4, 2, TRIPLET)
    + note("B", 3, 2, TRIPLET)
    + note("D", 5, 12, '<tie type="start"/>'),
    note("D", 5, 6, '<tie type="stop"/>')
    + "<note><grace/><pitch><step>A</step><octave>6</octave></pitch></note>"
    + note("B", 4, 18, "<voice>2</voice>"),
]


def score(bars: list[str]) -> str:
    measures = "".join(f"<measure>{bar}</measure>" for bar in bars)
    return (
        "<score-partwise><work><work-title>By Hand</work-title></work>"
        f"<part>{measures}</part></score-partwise>"
    )


def test_notes_are_heard_as_they_are_written(tmp_path: Path) -> None:
    (tmp_path / "a.musicxml").write_text(score(BARS))
    (tune,) = read_tunes(tmp_path)
    assert (tune.name, tune.source) == ("By Hand", "a.musicxml")
    heard = parse_abc(tune.abc).sounding()
    assert [(sound.midi, str(sound.start), str(sound.length)) for sound in heard] == [
        (66, "0", "1"),
        (65, "1", "1"),
        (66, "2", "1"),
        (72, "4", "1"),
        (76, "4", "1"),
        (67, "5", "1/3"),
        (69, "16/3", "1/3"),
        (59, "17/3", "1/3"),
        (74, "6", "3"),
    ]


def test_compressed_files_are_read(tmp_path: Path) -> None:
    plain, packed = tmp_path / "plain.xml", tmp_path / "packed.mxl"
    plain.write_text(score(BARS))
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(
            "META-INF/container.xml",
            '<container><rootfiles><rootfile full-path="a/b.xml"/></rootfiles></container>',
        )
        archive.writestr("a/b.xml", score(BARS))
    assert read_tunes(packed)[0].abc == read_tunes(plain)[0].abc


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("<score-timewise/>", "score-timewise"),
        ("<score-partwise/>", "with a <part>"),
        ("not xml", "cannot be read"),
        ("", "cannot be read"),
        (score(["<note><pitch><step>H</step></pitch></note>"]), "is damaged"),
        (f'<!DOCTYPE a [<!ENTITY b "c">]>{score(BARS)}', "entities"),
    ],
)
def test_other_files_are_refused_by_name(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "a.xml").write_text(content)
    with pytest.raises(InputError, match=words) as caught:
        read_tunes(tmp_path / "a.xml")
    assert "a.xml" in str(caught.value)


@pytest.mark.skipif(find_spec("music21") is None, reason="music21 is not installed")
@pytest.mark.parametrize("name", ["leadSheet/fosterBrownHair", "bach/bwv66.6", "bach/bwv269"])
def test_real_scores_sound_as_music21_reads_them(name: str) -> None:
    from music21 import converter, stream

    spec = find_spec("music21")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    path = Path(spec.submodule_search_locations[0]) / "corpus" / f"{name}.mxl"
    read = converter.parse(path)
    assert isinstance(read, stream.Score)
    part = read.parts[0].stripTies().flatten()
    wanted = [
        (pitch.midi, float(element.offset))
        for element in part.notes
        if not element.duration.isGrace and "Harmony" not in str(element.classes)
        for pitch in element.pitches
        if "ChordSymbol" not in str(element.classes)
    ]
    heard = parse_abc(read_tunes(path)[0].abc).sounding()
    assert [sound.midi for sound in heard] == [midi for midi, _ in wanted]
    assert [float(sound.start) for sound in heard] == pytest.approx([at for _, at in wanted])
