"""What the parts of a split share, through `ccal train`: kept together, allowed, or reported."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import pytest

from ccal.data import read_source
from ccal.runs import Run
from tests.cli.conftest import forget_hashes, invoke

VIEWS = ["captions.csv", "--x", "image=photos.npy", "--y", "text=caption"]
QUICK = ["--method", "linear", "--no-report"]


@pytest.fixture
def captions(files: Path) -> Path:
    """A row a caption: 60 photos, in photos.npy, of four captions each."""
    np.save("photos.npy", np.repeat(np.load("image.npy")[:60], 4, axis=0))
    write("captions.csv", [f"{word(row)} {word(row + 7)} {row}" for row in range(240)])
    return files


def word(number: int) -> str:
    words = ["red", "blue", "green", "bird", "dog", "cat", "runs", "sits", "flies", "here"]
    return words[number % len(words)]


def write(name: str, texts: list[str]) -> None:
    rows = [(text, "test" if row % 6 == 0 else "train") for row, text in enumerate(texts)]
    with open(name, "w", newline="") as file:
        csv.writer(file).writerows([("caption", "part"), *rows])


def in_two_parts(run: str, name: str) -> int:
    """How many test rows have an item that is in training, too."""
    data = read_source(Run.open(run).source)
    return int(np.isin(data.part("test").items(name), data.part("train").items(name)).sum())


def test_rows_of_one_photo_stay_together_unless_leaks_are_allowed(captions: Path) -> None:
    outcome = invoke("train", *VIEWS, *QUICK, "-o", "run")
    assert outcome.code == 0, outcome
    assert (
        "240 rows show 60 distinct image items; rows of one image stay together "
        "(--allow-leaks splits them)\n" in outcome.err
    )
    assert "warning: 2" not in outcome.err
    assert in_two_parts("run", "image") == 0
    outcome = invoke("train", *VIEWS, *QUICK, "--allow-leaks", "-o", "leaky")
    assert outcome.code == 0, outcome
    assert re.search(
        r"24 of 24 test .* share their image with training rows, .*--allow-leaks", outcome.err
    )
    assert in_two_parts("leaky", "image") == 24
    Path("my.toml").write_text("[data]\nallow_leaks = true\n")
    outcome = invoke("train", *VIEWS, *QUICK, "--config", "my.toml", "-o", "of-file")
    assert outcome.code == 0, outcome
    assert in_two_parts("of-file", "image") == 24


def test_a_run_of_an_earlier_version_keeps_its_split(captions: Path) -> None:
    assert invoke("train", *VIEWS, *QUICK, "--allow-leaks", "-o", "run").code == 0
    config = Path("run/config.toml")
    config.write_text(config.read_text().replace("allow_leaks = true\n", ""))
    forget_hashes(Path("run"))
    outcome = invoke("evaluate", "run")
    assert outcome.code == 0, outcome
    outcome = invoke("train", "--config", config, "-o", "again", "--no-report")
    assert outcome.code == 0, outcome
    assert Run.open("again").found == Run.open("run").found


def test_a_split_column_is_kept_with_a_warning(captions: Path) -> None:
    outcome = invoke("train", *VIEWS, *QUICK, "--split-column", "part", "-o", "run", "-q")
    assert outcome.code == 0, outcome
    assert "warning: 40 of 40 test rows share their image with training rows" in outcome.err
    assert "leave --split-column out" in outcome.err
    data = read_source(Run.open("run").source)
    assert data.split.test.tolist() == list(range(0, 240, 6))
    # The validation rows, which the column lacks, share no photo with training rows.
    assert not np.isin(data.part("valid").items("image"), data.part("train").items("image")).any()
