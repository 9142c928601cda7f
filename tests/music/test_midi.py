"""MIDI files written by hand, and the Nottingham tunes where they are there."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from ccal.errors import InputError
from ccal.music import build_store, parse_abc, read_tunes, render_tune, synthesise
from tests.music.midi_files import CHORDS, G_MAJOR, SCALE, Note, metre, midi, track
from tests.music.tunes import needs_music

mido = pytest.importorskip("mido")

NOTTINGHAM = Path(__file__).parents[2].parent / "shared/data/nottingham"


def read(tmp_path: Path, content: bytes, melody: str | None = None) -> str:
    (tmp_path / "air.mid").write_bytes(content)
    (tune,) = read_tunes(tmp_path / "air.mid", melody=melody)
    assert tune.source == "air.mid"
    return tune.abc


def music(abc: str) -> str:
    return " ".join(abc.partition("K:")[2].split()[1:])


def heard(abc: str) -> list[Note]:
    sounding = parse_abc(abc).sounding()
    return [(float(sound.start), float(sound.length), sound.midi) for sound in sounding]


def test_the_melody_is_written_and_the_rest_accompanies(tmp_path: Path) -> None:
    meta = [G_MAJOR, metre(0, 3, 2)]
    abc = read(tmp_path, midi(track(SCALE, meta=meta), track(CHORDS, channel=1)))
    assert abc.startswith("X:1\nT:air\n%%accompaniment 0 4 43 47 50\n")
    assert "\nM:3/4\nL:1/4\nK:G\n" in abc
    assert music(abc) == "G A B | c d e | f g |"
    score = parse_abc(abc)
    assert heard(abc) == SCALE
    assert [(float(s.start), float(s.length), s.midi) for s in score.accompaniment] == CHORDS


def test_rhythm(tmp_path: Path) -> None:
    """A pickup, eighths under beams, a triplet, a rest, ties over bar lines, new metre and key."""
    third = 1 / 3
    notes = [
        (3, 0.5, 62),
        (3.5, 0.5, 64),
        (4, third, 66),
        (4 + third, third, 67),
        (4 + 2 * third, third, 69),
        (6, 3, 70),
        (9, 2 * third, 66),
        (9 + 2 * third, 2 * third, 67),
        (9 + 4 * third, 2 * third, 69),
        (11, 1, 65),
        (12, 2, 65),
        (12, 2, 69),
    ]
    meta = [metre(0, 4, 2), metre(8, 2, 2), (8, b"\xff\x59\x02\xff\x00")]
    abc = read(tmp_path, midi(track([], "The Piece"), track(notes, meta=[G_MAJOR, *meta])))
    assert abc.startswith("X:1\nT:The Piece\n")
    assert "\nM:4/4\nL:1/4\nK:G\n" in abc
    assert music(abc) == (
        "D1/2E1/2 | (3:2:3F1/2G1/2A1/2 z _B2- | "
        "[M:2/4][K:F]B (3:2:2^FG1/2- | (3:2:2G1/2A F | [FA]2 |"
    )
    shifted = [(start - 3, length, key) for start, length, key in notes]
    np.testing.assert_allclose(heard(abc), shifted, atol=1e-9)


def test_small_delays_are_not_written(tmp_path: Path) -> None:
    """A player is never quite on the beat, and leaves small gaps between notes."""
    rng = np.random.default_rng(0)
    lengths = rng.choice([0.5, 1, 1.5], 60)
    starts = np.cumsum(lengths) - lengths
    keys = 60 + rng.integers(0, 20, 60)
    played = [
        (max(0.0, start + rng.uniform(-0.04, 0.04)), 0.85 * length, int(key))
        for start, length, key in zip(starts, lengths, keys, strict=True)
    ]
    found = heard(read(tmp_path, midi(track(played))))
    assert [key for _, _, key in found] == keys.tolist()
    assert [start for start, _, _ in found] == starts.tolist()
    assert [length for _, length, _ in found[:-1]] == lengths[:-1].tolist()
    off = [(start, 0.1, 60) for start in np.cumsum(rng.uniform(0.2, 1.0, 60))]
    with pytest.raises(InputError, match="do not follow the beat"):
        read(tmp_path, midi(track(off)))


@pytest.mark.parametrize("seed", range(8))
def test_any_rhythm_can_be_written(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    notes: list[Note] = []
    now = float(rng.integers(0, 5))
    for _ in range(40):
        # Sixteenths, triplets or thirty-seconds, up to the next beat and beyond.
        grid = int(rng.choice([4, 6, 8, 3]))
        for _ in range(grid):
            length = int(rng.integers(1, 2 * grid)) / grid
            notes.append((now, length, int(rng.integers(55, 87))))
            now += length
        now = float(np.ceil(now - 1e-9) + rng.integers(0, 2))
    bars = [metre(0, int(rng.integers(2, 13)), int(rng.integers(1, 4))), metre(20.5, 3, 3)]
    keys = [(at, b"\xff\x59\x02" + bytes((int(rng.integers(0, 8)), 0))) for at in (0.0, 31.0)]
    found = heard(read(tmp_path, midi(track(notes, meta=bars + keys))))
    shifted = [(start - notes[0][0], key) for start, _, key in notes]
    np.testing.assert_allclose([(at, key) for at, _, key in found], shifted, atol=1e-6)


def test_a_key_that_the_file_does_not_name(tmp_path: Path) -> None:
    assert "K:G\n" in read(tmp_path, midi(track(SCALE)))
    lower = [(start, length, key - 4) for start, length, key in SCALE]
    assert "K:Eb\n" in read(tmp_path, midi(track(lower)))


def test_the_tempo_is_the_one_that_holds_longest(tmp_path: Path) -> None:
    def tempo(at: float, quarters_a_minute: float) -> tuple[float, bytes]:
        return at, b"\xff\x51\x03" + round(60e6 / quarters_a_minute).to_bytes(3, "big")

    written = read(tmp_path, midi(track(SCALE, meta=[tempo(0, 60), tempo(1, 208), tempo(7, 90)])))
    assert "\nQ:1/4=208\n" in written
    assert "Q:" not in read(tmp_path, midi(track(SCALE)))


def test_names_that_programs_give_are_no_titles(tmp_path: Path) -> None:
    assert "T:air\n" in read(tmp_path, midi(track([], "Master Track"), track(SCALE, "Flute")))


def test_chords_and_accidentals(tmp_path: Path) -> None:
    notes = [(0, 1, 72), (0, 1, 76), (1, 1, 65), (1, 1, 66), (2, 1, 65), (3, 2, 61), (6, 1, 61)]
    abc = read(tmp_path, midi(track(notes, meta=[(0.0, b"\xff\x59\x02\x00\x00")])))
    assert music(abc) == "[ce][F_G] F^C- | Cz ^C |"
    assert heard(abc) == notes


def test_the_melody_is_found(tmp_path: Path) -> None:
    low = [(start, length, key - 12) for start, length, key in SCALE]
    near = [(start, length, key - 3) for start, length, key in SCALE]
    highest = midi(track(CHORDS), track(low, channel=1), track(SCALE, channel=2))
    assert heard(read(tmp_path, highest)) == SCALE
    named = midi(track(SCALE, "Flute"), track(low, "The Melody"), track(CHORDS))
    assert heard(read(tmp_path, named)) == low
    both = midi(track(near, "Fiddle"), track(SCALE, "Flute"))
    with pytest.raises(InputError, match=r"air\.mid.*1 'Fiddle' \(8 notes\), 2 'Flute'.*--melody"):
        read(tmp_path, both)
    assert heard(read(tmp_path, both, "Fiddle")) == near
    assert heard(read(tmp_path, both, "2")) == SCALE
    with pytest.raises(InputError, match="it has no voice '3'"):
        read(tmp_path, both, "3")
    piano = midi(track([*SCALE, *CHORDS]))
    with pytest.raises(InputError, match="several notes at a time"):
        read(tmp_path, piano)
    assert len(heard(read(tmp_path, piano, "1"))) == 14


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (midi(track([])), "it has no notes"),
        (midi(track(SCALE, channel=9)), "drums only"),
        (midi(track(SCALE))[:60], "cannot be read as MIDI"),
        (b"hello", "does not begin with MThd"),
        (b"", "does not begin with MThd"),
        (midi(track(SCALE), kind=2), "type 2"),
        (midi(track(SCALE), division=0xE728), "SMPTE"),
        (midi(track([(0, 1, 60), (30_000, 1, 62)])), "30,001 quarter notes"),
    ],
)
def test_other_files_are_refused_by_name(tmp_path: Path, content: bytes, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        read(tmp_path, content)
    assert "air.mid" in str(caught.value)


def test_a_midi_file_beside_its_notation_is_left_out(tmp_path: Path) -> None:
    for name in ("airs1", "airs2", "other", "airs"):
        (tmp_path / f"{name}.mid").write_bytes(midi(track(SCALE)))
    (tmp_path / "airs.abc").write_text("X:1\nT:First\nK:C\nC|\n")
    found = [tune.source for tune in read_tunes(tmp_path)]
    assert found == ["airs.abc, X:1", "airs2.mid", "other.mid"]
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/other.mid").write_bytes(midi(track(SCALE)))
    assert [tune.source for tune in read_tunes(tmp_path)] == [*found, "sub/other.mid"]


@needs_music
def test_a_folder_is_rendered_without_its_damaged_files(tmp_path: Path) -> None:
    tune = [(n, 1, 60 + n * 7 % 17) for n in range(20)]
    higher = [(start, length, key + 5) for start, length, key in tune]
    (tmp_path / "a.mid").write_bytes(midi(track(tune), track(CHORDS)))
    (tmp_path / "b.MID").write_bytes(midi(track(higher), track(CHORDS))[:-30])
    (tmp_path / "c.midi").write_bytes(midi(track(higher)))
    wanted = read_tunes(tmp_path)
    store = build_store(wanted, tmp_path / "store", processes=1)
    assert [tune.source for tune in store.tunes] == ["a.mid", "c.midi"]
    assert store.groups == [0, 0], "the same melody, transposed"
    ((title, reason),) = store.skipped
    assert title == "'b' (b.MID)"
    assert reason.startswith("it cannot be read as MIDI")
    (tmp_path / "c.midi").write_bytes(b"")
    with pytest.raises(InputError, match="would be dropped"):
        build_store(read_tunes(tmp_path), tmp_path / "store", replace=False)


@needs_music
def test_the_accompaniment_is_heard_and_has_no_onsets(tmp_path: Path) -> None:
    alone = read(tmp_path, midi(track(SCALE)))
    together = read(tmp_path, midi(track(SCALE), track([(1.5, 1, 43)])))
    one, other = synthesise(parse_abc(alone)), synthesise(parse_abc(together))
    begin = round(0.75 * 44_100)
    assert np.array_equal(one[:begin], other[:begin])
    assert not np.array_equal(one[begin:], other[begin : len(one)])
    assert np.array_equal(render_tune(alone).onsets, render_tune(together).onsets)
    for line in ("x 1 60", "1", "-1 1 60", "0 0 60", "0 1 128", "1/0 1 60"):
        with pytest.raises(InputError, match="is not as expected: start and length"):
            parse_abc(re.sub("%%accompaniment .*", f"%%accompaniment {line}", together))


@pytest.mark.skipif(not (NOTTINGHAM / "midi").is_dir(), reason=f"{NOTTINGHAM}/midi is not there")
def test_nottingham_sounds_as_its_files_do() -> None:
    files = sorted((NOTTINGHAM / "midi").glob("*.mid"))
    assert len(files) == 1034
    same = 0
    for file in files[::40]:
        abc = read_tunes(file)[0].abc
        ticks, struck = 0, []
        for message in mido.MidiFile(file).tracks[0]:
            ticks += message.time
            if message.type == "note_on" and message.velocity:
                struck.append((ticks / 1024, message.note))
        found = [(start, key) for start, _, key in heard(abc)]
        shift = struck[0][0] - found[0][0]
        assert [key for _, key in sorted(found)] == [key for _, key in sorted(struck)]
        assert [at + shift for at, _ in found] == pytest.approx([at for at, _ in struck], abs=0.002)
        collection, number = re.fullmatch(r"(.*?)(\d+)", file.stem).groups()  # type: ignore[union-attr]
        text = (NOTTINGHAM / f"{collection}.abc").read_bytes().decode("latin-1")
        written = next(
            t for t in re.split(r"^(?=X:)", text, flags=re.M) if re.match(rf"X: *{number}\n", t)
        )
        same += [key for _, _, key in heard(written)[:12]] == [key for _, key in found[:12]]
    assert same >= 0.9 * len(files[::40])
