"""`ccal identify`: a recording or a picture in, the tune and its place out."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import ccal
from ccal.model import DualEncoder
from ccal.music import SheetAudioStore, build_store, default, parse_abc, split_tunes, synthesise
from ccal.music.pictures import staff_picture
from tests.cli.conftest import Outcome, invoke, start
from tests.music.conftest import random_abc, small_model
from tests.music.tunes import needs_music, tunes

soundfile = pytest.importorskip("soundfile")
Image = pytest.importorskip("PIL.Image")

pytestmark = needs_music


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rendered tunes, a model that has learned nothing, a recording and a picture."""
    folder = tmp_path_factory.mktemp("identify")
    store = build_store(tunes(), folder / "tunes")
    model = small_model()
    snippets = (torch.rand(80, 1, 40, 100), torch.rand(80, 1, 136, 100))
    model.refit([snippets]).save(folder / "model")
    samples = synthesise(parse_abc(tunes()[0].abc))[44100 : 6 * 44100]
    soundfile.write(folder / "played.wav", samples, 44100)
    sheet = store.tune(1).sheet
    (folder / "staff.png").write_bytes(staff_picture(sheet, (60, 400)))
    return folder


def identify(place: Path, query: str, *options: object) -> Outcome:
    known = ["--library", place / "tunes", "--model", place / "model"]
    return invoke("identify", place / query, *known, *options)


def test_a_person_reads_a_table(place: Path) -> None:
    outcome = identify(place, "played.wav", "--k", 2)
    assert outcome.code == 0, outcome
    verdict, header, first, second = outcome.out.splitlines()
    assert verdict.startswith("It is ")
    assert header.split() == ["rank", "score", "chance", "time", "columns", "tune"]
    assert first.split()[0] == "1"
    assert "invented.abc, X:" in first
    assert first.index("(inv") > 0
    assert float(first.split()[1]) >= float(second.split()[1])


@pytest.mark.parametrize(("query", "kind"), [("played.wav", "audio"), ("staff.png", "sheet")])
def test_a_program_reads_json(place: Path, query: str, kind: str) -> None:
    outcome = identify(place, query, "--json")
    assert outcome.code == 0, outcome
    answer = json.loads(outcome.out)
    assert answer["kind"] == kind
    assert answer["query"].endswith(query)
    assert sorted(match["tune"] for match in answer["matches"]) == [0, 1, 2]
    for match in answer["matches"]:
        assert match["columns"][0] <= match["columns"][1]
        assert len(match["path"][0]) == 3


def test_places_are_written_as_pictures_and_sound(place: Path, tmp_path: Path) -> None:
    outcome = identify(place, "played.wav", "--out", tmp_path / "found", "-k", 1)
    assert outcome.code == 0, outcome
    (picture,) = (tmp_path / "found").glob("1-*.png")
    (sound,) = (tmp_path / "found").glob("1-*.wav")
    assert Image.open(picture).size[1] == 120
    assert soundfile.info(sound).duration >= 0.9
    again = identify(place, "staff.png", "--out", sound)
    assert again.code == 2
    assert "expected a folder" in again.err


def test_the_default_is_kept_in_the_users_cache(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tunes take minutes to render: two short ones stand for them here."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(default, "held_out_tunes", lambda: [tunes()[0], tunes()[2]])
    for _ in range(2):
        outcome = invoke("identify", place / "played.wav", "--model", place / "model", "--json")
        assert outcome.code == 0, outcome
        names = {match["name"] for match in json.loads(outcome.out)["matches"]}
        assert names == {"Up and Down", "Other Steps"}
    assert len(SheetAudioStore(tmp_path / "ccal" / "tunes")) == 2


def test_tunes_that_have_changed_are_embedded_again(place: Path, tmp_path: Path) -> None:
    text = "".join(random_abc(number) for number in (1, 2))
    known = ["--library", tmp_path / "dances", "--model", place / "model", "--json"]
    for written, names in ((random_abc(1), {"Dance 1"}), (text, {"Dance 1", "Dance 2"})):
        (tmp_path / "dances.abc").write_text(written)
        built = invoke("data", "build", tmp_path / "dances.abc", "-o", tmp_path / "dances")
        assert built.code == 0, built
        outcome = invoke("identify", place / "played.wav", *known)
        assert outcome.code == 0, outcome
        assert {match["name"] for match in json.loads(outcome.out)["matches"]} == names


def test_without_a_model_the_pretrained_one_is_asked_for(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def pretrained(name: str) -> DualEncoder:
        asked.append(name)
        return ccal.load(place / "model")

    monkeypatch.setattr(default, "pretrained", pretrained)
    outcome = invoke("identify", place / "played.wav", "--library", place / "tunes")
    assert outcome.code == 0, outcome
    assert asked == ["folk-tunes"]


def test_what_cannot_be_identified(place: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.wav").write_text("no sound")
    soundfile.write(tmp_path / "silent.wav", np.zeros(9000), 22050)
    Image.new("L", (300, 90), "white").save(tmp_path / "empty.png")
    for query, said in (
        (tmp_path / "none.wav", "there is no such file"),
        (tmp_path, "is a folder; expected a file"),
        (tmp_path / "broken.wav", "cannot be read as sound"),
        (tmp_path / "silent.wav", "silent from its beginning"),
        (tmp_path / "empty.png", "no staff was found"),
    ):
        outcome = identify(place, str(query))
        assert outcome.code == 2
        assert said in outcome.err
        assert outcome.out == ""
    known = ["--library", tmp_path, "--model", place / "model"]
    outcome = invoke("identify", place / "played.wav", *known)
    assert outcome.code == 2
    assert "holds no tunes: expected files of ABC" in outcome.err


def test_ctrl_c_while_embedding_leaves_nothing_half_done(place: Path, tmp_path: Path) -> None:
    text = "".join(random_abc(number) for number in range(8))
    # Long enough to be caught at work.
    store = build_store(split_tunes(text, "random.abc"), tmp_path / "tunes")
    known = ["--library", store.folder, "--model", place / "model"]
    process = start("identify", place / "played.wav", *known, cwd=tmp_path)
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline and not list(store.folder.glob("library-*/.sheet.npy")):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert not list(store.folder.glob("library-*/library.json"))
    assert not list(store.folder.glob("library-*/.*.npy"))
