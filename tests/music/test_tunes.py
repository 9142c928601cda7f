from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from ccal.errors import InputError
from ccal.music import (
    collection,
    melody_groups,
    parse_abc,
    read_tunes,
    split_tunes,
    split_tunes_by_melody,
)
from ccal.music.tunes import tempo_of
from tests.music.tunes import needs_music

Melody = tuple[NDArray[np.int64], NDArray[np.int64]]


def melody(seed: int, n: int = 60) -> Melody:
    rng = np.random.default_rng(seed)
    pitches = 60 + rng.integers(0, 20, n)
    return pitches, np.cumsum(rng.choice([240, 480, 960], n))


def test_a_folder_of_tunes(tmp_path: Path) -> None:
    (tmp_path / "b.abc").write_bytes("X:1\nT:Zwölf\nK:C\nC|\n".encode("latin-1"))
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/a.ABC").write_text("% text\nX:1\r\nT:One\r\nK:C\r\nC|\r\n\r\nX:2\r\nK:D\r\nD|")
    found = read_tunes(tmp_path)
    assert [tune.title for tune in found] == [
        "'Zwölf' (b.abc, X:1)",
        "'One' (sub/a.ABC, X:1)",
        "'untitled' (sub/a.ABC, X:2)",
    ]
    assert heard_of(found[2].abc) == [62]
    assert [tune.source for tune in read_tunes(tmp_path / "b.abc")] == ["b.abc, X:1"]


def test_what_cannot_be_read_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    air = "X:1\nT:Air\nQ:1/4=208\nK:C\nCDEF|"
    (tmp_path / "airs.abc").write_text(air)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/notes.mid").write_text(air.replace("Air", "Other"))
    (tmp_path / "sub/page.abc").write_bytes(b"%PDF-1.4")
    (tmp_path / "text.abc").write_text("hello")
    (tmp_path / "broken.mxl").write_bytes(b"PK\3\4 and no more")
    (tmp_path / "broken.xml").write_text("<html/>")
    (tmp_path / "list.txt").write_text("is not looked at")
    found = {tune.source: tune for tune in read_tunes(tmp_path)}
    problems = {source: tune.problem for source, tune in found.items() if tune.problem}
    assert set(problems) == {
        "broken.mxl", "broken.xml", "sub/page.abc", "text.abc", "sub/notes.mid"
    }  # fmt: skip
    assert "cannot be read as MusicXML" in str(problems["broken.mxl"])
    assert "it begins with <html>" in str(problems["broken.xml"])
    assert "does not begin with MThd" in str(problems["sub/notes.mid"])
    assert found["airs.abc, X:1"].name == "Air"


def test_tunes_have_their_own_tempo(tmp_path: Path) -> None:
    for field, tempo in (
        ("Q:1/4=208", 208), ("Q: 3/8 = 120", 180), ("Q:1/2=104 % fast", 208), ("Q:1/8=1000", 400),
        ('Q:"Lively" 3/8=116 "ca."', 174), ("Q:C=200", 100), ("Q:1/4 3/8 1/4=40", 140),
        ('Q:"Allegro"', None), ("Q:", None), ("Q:3/0=90", None), ("", None),
    ):  # fmt: skip
        assert tempo_of(f"X:1\nL:1/8\n{field}\nK:C\nC|") == tempo, field
    mark = "<metronome><beat-unit>quarter</beat-unit><beat-unit-dot/><per-minute>112</per-minute>"
    note = "<note><pitch><step>C</step><octave>4</octave></pitch><duration>1</duration></note>"
    for said, tempo in (
        ('<sound tempo="96"/>', 96), (f"<direction>{mark}</metronome></direction>", 168), ("", None)
    ):  # fmt: skip
        text = f'<score-partwise><part id="P1"><measure>{said}{note}</measure></part>'
        (tmp_path / "air.musicxml").write_text(f"{text}</score-partwise>")
        (tune,) = read_tunes(tmp_path / "air.musicxml")
        assert tempo_of(tune.abc) == tempo
        assert heard_of(tune.abc) == [60]


def heard_of(abc: str) -> list[int]:
    return [sound.midi for sound in parse_abc(abc).sounding()]


def test_no_tunes(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no ABC, MusicXML or MIDI files"):
        read_tunes(tmp_path)
    (tmp_path / "a.abc").write_text("hello")
    with pytest.raises(InputError, match="has no tunes"):
        read_tunes(tmp_path)
    for content, said in (
        (b"%PDF-1.7\n", "it is no notation but application/pdf.*ccal identify"),
        (b"RIFF....WAVEfmt ", "no notation but audio/wav"),
        (b"\x89PNG\r\n\x1a\n", "no notation but image/png"),
    ):
        (tmp_path / "b.abc").write_bytes(content)
        with pytest.raises(InputError, match=said):
            read_tunes(tmp_path / "b.abc")
    with pytest.raises(InputError, match="neither a file nor a folder"):
        read_tunes(tmp_path / "none")
    with pytest.raises(InputError, match="there are ryan, oneill"):
        collection("other")
    assert split_tunes("no tune", "x") == []


@needs_music
def test_old_collections() -> None:
    ryan = collection("ryan")
    assert len(ryan) == 1059
    assert len(parse_abc(ryan[0].abc).attacks()) > 50
    assert len(collection("oneill")) == 2009


def test_same_melodies_are_found_in_other_keys_and_units() -> None:
    one, other = melody(0), melody(1)
    transposed, doubled = (one[0] + 7, one[1]), (one[0] - 3, one[1] * 2)
    assert melody_groups([one, other, transposed, melody(2), doubled]) == [0, 1, 0, 2, 0]


def test_nearly_the_same_melodies_are_found() -> None:
    pitches, starts = melody(0)
    changed = pitches.copy()
    changed[[20, 45]] += 1
    longer = (np.append(pitches, pitches[:20] + 1), np.append(starts, starts[:20] + starts[-1]))
    assert melody_groups([(pitches, starts), (changed, starts), longer]) == [0, 0, 0]


def test_different_melodies_are_not_the_same() -> None:
    assert melody_groups([melody(seed) for seed in range(30)]) == list(range(30))
    one = melody(0)
    assert melody_groups([one, (one[0], np.arange(60))]) == [0, 1], "another rhythm"
    assert melody_groups([]) == []
    single = (np.array([60]), np.array([0]))
    assert melody_groups([single, melody(0)]) == [0, 1]


def test_groups_stay_together_in_a_split() -> None:
    groups = np.random.default_rng(0).integers(0, 150, 300)
    split = split_tunes_by_melody(groups.tolist(), valid=30, test=0.1, seed=3)
    assert (len(split.valid), len(split.test), len(split.train)) == (30, 30, 240)
    sides = [set(groups[part]) for part in (split.train, split.valid, split.test)]
    for first, second in combinations(sides, 2):
        assert not first & second
    assert sorted(np.concatenate((split.train, split.valid, split.test))) == list(range(300))
    same = split_tunes_by_melody(groups.tolist(), valid=50, test=0.1, seed=3)
    assert np.array_equal(same.test, split.test)
    other = split_tunes_by_melody(groups.tolist(), valid=30, test=0.1, seed=4)
    assert not np.array_equal(other.test, split.test)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"valid": 2, "test": 2}, "leave nothing of 4 tunes"),
        ({"valid": -1}, "valid must be a whole number of at least 0"),
        ({"test": 1.5}, "test must be a fraction"),
        ({"seed": -1}, "seed must be a whole number of at least 0"),
    ],
)
def test_impossible_splits_are_refused(sizes: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        split_tunes_by_melody([0, 1, 2, 3], **sizes)
