"""`ccal data`: tunes in, staff lines and sound out, and a picture of them."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import numpy as np
import pytest

from ccal.music import SheetAudioStore
from tests.cli.conftest import invoke, start
from tests.music.midi_files import SCALE, midi, track
from tests.music.tunes import ABC, needs_music

Image = pytest.importorskip("PIL.Image")

pytestmark = needs_music


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    (folder / "tunes.abc").write_text(f"{ABC}\nX:4\nT:Silence\nK:C\nz8|\n")
    outcome = invoke("data", "build", folder / "tunes.abc", "-o", folder / "store")
    assert outcome.code == 0, outcome
    assert outcome.out == ""
    assert "left out: 'Silence' (tunes.abc, X:4): it has no notes." in outcome.err
    assert "3 tunes, " in outcome.err
    assert outcome.err.rstrip().endswith("1 left out")
    return folder


def test_tunes_are_rendered(built: Path) -> None:
    store = SheetAudioStore(built / "store")
    assert [tune.name for tune in store.tunes] == ["Up and Down", "The Same, Higher", "Other Steps"]
    assert store.tunes[2].abc is not None
    assert store.settings["tempo"] == 120


def test_settings_are_taken(built: Path, tmp_path: Path) -> None:
    (tmp_path / "one.abc").write_text(ABC[: ABC.index("X:2")])
    options = ["--tempo", "90", "--program", "40", "--processes", "1"]
    outcome = invoke("data", "build", tmp_path, "-o", tmp_path / "slow", *options)
    assert outcome.code == 0, outcome
    slow, fast = SheetAudioStore(tmp_path / "slow"), SheetAudioStore(built / "store")
    assert slow.settings["program"] == 40
    ends = [int(store.tune(0).onsets["frame"][-1]) for store in (slow, fast)]
    assert ends[0] == pytest.approx(ends[1] * 120 / 90, abs=1)


def test_tunes_are_dropped_only_with_replace(tmp_path: Path) -> None:
    first, second = tmp_path / "first.abc", tmp_path / "second.abc"
    first.write_text(ABC[: ABC.index("X:3")])
    second.write_text(ABC[ABC.index("X:3") :])
    where = ["-o", tmp_path / "store", "--processes", "1"]
    assert invoke("data", "build", first, *where).code == 0
    outcome = invoke("data", "build", second, *where)
    assert outcome.code == 2
    assert "holds 2 tunes that are not among the 1 given and would be dropped" in outcome.err
    assert "--replace" in outcome.err
    slow = invoke("data", "build", first, *where, "--tempo", "90")
    assert slow.code == 2
    assert "other settings (tempo 120.0, not 90.0)" in slow.err
    assert len(SheetAudioStore(tmp_path / "store")) == 2
    outcome = invoke("data", "build", second, *where, "--replace")
    assert outcome.code == 0, outcome
    assert [tune.name for tune in SheetAudioStore(tmp_path / "store").tunes] == ["Other Steps"]


def test_help_names_all_that_is_taken() -> None:
    text = " ".join(invoke("data", "build", "--help").out.split())
    for word in (".abc", ".musicxml", ".mxl", ".mid", "--melody", "--replace"):
        assert word in text
    assert "MusicXML" in invoke("data", "--help").out


def test_a_preview_is_drawn(built: Path, tmp_path: Path) -> None:
    for number, options in enumerate(([], ["--centred", "--tunes", "1", "--seed", "3"])):
        path = tmp_path / f"{number}.png"
        outcome = invoke("data", "preview", built / "store", "-o", path, *options)
        assert outcome.code == 0, outcome
        assert outcome.err == f"Wrote {path}\n"
        pixels = np.asarray(Image.open(path).convert("RGB"))
        assert (pixels == [255, 0, 0]).all(axis=2).any()


def test_what_cannot_be_built_or_drawn(built: Path, tmp_path: Path) -> None:
    flute = tmp_path / "flute.mid"
    flute.write_bytes(midi(track(SCALE, "Flute")))
    for arguments, said in (
        (["build", tmp_path / "none.abc", "-o", tmp_path / "store"], "neither a file nor a folder"),
        (["build", flute, "-o", tmp_path / "store", "--melody", "2"], "it has 1 'Flute' (8 notes)"),
        (["build", built / "tunes.abc", "-o", built / "tunes.abc"], "must be a folder"),
        (["build", built / "tunes.abc", "-o", tmp_path / "s", "--tempo", "2"], "tempo must be"),
        (["build", built / "tunes.abc", "-o", built], "is not empty and no store: it holds"),
        (["preview", tmp_path, "-o", tmp_path / "p.png"], "store; `ccal data build`"),
        (["preview", built / "store", "-o", tmp_path / "p.gif"], "ends in .png"),
        (["preview", built / "store", "-o", tmp_path / "no" / "p.png"], "there is no folder"),
    ):
        outcome = invoke("data", *arguments)
        assert outcome.code == 2
        assert outcome.err.startswith("error: ")
        assert said in outcome.err
    assert "build" in invoke("data", "--help").out


def test_ctrl_c_stops_rendering_and_what_is_done_stays(tmp_path: Path) -> None:
    tune = ABC[ABC.index("X:3") :]
    text = "\n\n".join(tune.replace("E2F", "E2F " * n) for n in range(1, 40))
    (tmp_path / "many.abc").write_text(text)
    process = start("data", "build", "many.abc", "-o", "store", "--processes", "1", cwd=tmp_path)
    parts = tmp_path / "store" / "parts"
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline and not list(parts.glob("*.npz")):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    done = len(list(parts.glob("*.npz")))
    assert 1 <= done < 39
    assert not (tmp_path / "store" / "manifest.json").exists()
