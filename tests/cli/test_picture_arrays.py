"""Pictures and spectrograms as arrays: VGG towers from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import ccal
from ccal.encoders import VGG, LinearTower, ResidualVGG
from ccal.runs import load_model
from tests.cli.conftest import invoke

pytestmark = pytest.mark.filterwarnings("ignore::ccal.errors.SmallBatchWarning")

ARRAYS = ["--x", "sheet=sheet.npy", "--y", "audio=audio.npy"]
QUICK = [*ARRAYS, "--epochs", "1", "--no-report", "-q", "-o", "run"]


@pytest.fixture
def arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """60 pairs: sheet.npy (60, 40, 50), uint8, and audio.npy (60, 1, 44, 36), float16."""
    rng = np.random.default_rng(0)
    meaning = rng.normal(size=(60, 6))
    sheet = np.tensordot(meaning, rng.normal(size=(6, 40, 50)), 1)
    audio = np.tensordot(meaning, rng.normal(size=(6, 1, 44, 36)), 1)
    scaled = (sheet - sheet.min()) / (sheet.max() - sheet.min())
    np.save(tmp_path / "sheet.npy", (255 * scaled).astype(np.uint8))
    np.save(tmp_path / "audio.npy", audio.astype(np.float16))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("method", ["ccal", "dcca", "learned"])
def test_networks_have_vgg_towers(arrays: Path, method: str) -> None:
    preset = ["--preset", "nottingham", "--method", method, "--dim", "4", "--set", "stride=2"]
    outcome = invoke("train", *QUICK, *preset)
    assert outcome.code == 0, outcome
    model = load_model("run")
    sheet, audio = model.towers["sheet"], model.towers["audio"]
    assert isinstance(sheet, VGG)
    assert isinstance(audio, VGG)
    assert (sheet.height, sheet.width, sheet.stride, sheet.out_features) == (40, 50, 2, 4)
    assert (audio.height, audio.width) == (44, 36)
    assert invoke("evaluate", "run").out == outcome.out
    # Both shapes of an array are the same pictures.
    embedded = []
    for name, file in (("sheet", np.load("sheet.npy")), ("audio", np.load("audio.npy")[:, 0])):
        np.save("given.npy", file)
        assert invoke("encode", "run", name, "given.npy", "-o", f"{name}-out.npy").code == 0
        embedded.append(np.load(f"{name}-out.npy"))
        assert embedded[-1].shape == (60, 4)
        assert np.allclose(embedded[-1], model.encode(name, file.astype(np.float32)), atol=1e-5)
    assert np.allclose(embedded[1], model.encode("audio", np.load("audio.npy")), atol=1e-5)


def test_an_index_of_pictures_is_searched(arrays: Path) -> None:
    preset = ["--preset", "nottingham", "--dim", "4", "--set", "stride=2"]
    assert invoke("train", *QUICK, *preset).code == 0
    assert invoke("info", "run").code == 0
    built = invoke("index", "run", "audio.npy", "--modality", "audio", "-o", "audio-index")
    assert built.code == 0, built
    np.save("one.npy", np.load("sheet.npy")[3:4])
    for place in ("audio-index", "run"):
        found = invoke("search", place, "one.npy", "--modality", "sheet", "-k", "5", "--json")
        assert found.code == 0, found
        assert len(json.loads(found.out)[0]["hits"]) == 5


@pytest.mark.parametrize("method", ["ccal", "dcca", "learned"])
def test_every_method_can_start_as_linear_cca(arrays: Path, method: str) -> None:
    options = ["--preset", "ccal", "--method", method, "--dim", "6", "--set", "stride=2"]
    outcome = invoke("train", *QUICK, *options)
    assert outcome.code == 0, outcome
    records = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    assert [record["epoch"] for record in records] == [0, 1]
    assert records[0]["mrr_x_to_y"] > 0.6
    assert isinstance(load_model("run").towers["audio"], ResidualVGG)


def test_a_start_at_linear_cca_needs_pictures(arrays: Path) -> None:
    np.save("flat.npy", np.load("audio.npy").reshape(60, -1))
    mixed = ["--x", "sheet=sheet.npy", "--y", "audio=flat.npy", "-o", "other"]
    refused = invoke("train", *mixed, "--preset", "ccal", "--set", "stride=2")
    assert refused.code != 0
    assert 'start = "linear" needs pictures' in refused.err


@pytest.mark.parametrize("method", ["linear", "refined"])
def test_linear_methods_flatten(arrays: Path, method: str) -> None:
    outcome = invoke("train", *QUICK, "--method", method, "--dim", "6")
    assert outcome.code == 0, outcome
    assert json.loads(Path("run/evaluation.json").read_text())["x_to_y"]["mrr"] > 60
    model = load_model("run")
    tower = model.towers["sheet"]
    assert isinstance(tower, LinearTower)
    assert tower.in_features == 40 * 50
    assert invoke("evaluate", "run").out == outcome.out
    encoded = invoke("encode", "run", "audio", "audio.npy", "-o", "out.npy")
    assert encoded.code == 0, encoded
    flat = np.load("audio.npy").reshape(60, -1).astype(np.float32)
    assert np.allclose(np.load("out.npy"), model.encode("audio", flat), atol=1e-5)


WRONG = {
    "small": (
        (60, 20, 50),
        "sheet: stride 2 and 4 times max-pooling need at least 31 x 31 pixels, got 20 x 50. For "
        "such pictures lower the stride (--set stride=1), or take a method that flattens them",
    ),
    "channels": ((60, 3, 40, 50), "sheet is an array of shape ('n', 3, 40, 50); the method ccal"),
    "five": ((60, 1, 1, 40, 50), "pictures of one channel, (n, height, width) or (n, 1, height"),
}


@pytest.mark.parametrize("case", WRONG)
def test_other_shapes_are_refused(arrays: Path, case: str) -> None:
    shape, message = WRONG[case]
    np.save("sheet.npy", np.random.default_rng(0).normal(size=shape))
    outcome = invoke("train", *QUICK, "--preset", "nottingham", "--set", "stride=2")
    assert outcome.code == 2, outcome
    assert message in " ".join(outcome.err.split())


def test_the_scale_of_pictures_does_not_matter(arrays: Path) -> None:
    preset = ["--preset", "nottingham", "--dim", "4", "--set", "stride=2"]
    assert invoke("train", *QUICK, *preset).code == 0
    np.save("sheet.npy", np.load("sheet.npy").astype(np.float32) / 255)
    again = invoke("train", *QUICK[:-1], "other", *preset)
    assert again.code == 0, again
    one, other = (ccal.load(f"{run}/model") for run in ("run", "other"))
    sheet = np.load("sheet.npy")
    a, b = one.encode("sheet", 255 * sheet), other.encode("sheet", sheet)
    assert np.corrcoef(a.ravel(), b.ravel())[0, 1] > 0.99
