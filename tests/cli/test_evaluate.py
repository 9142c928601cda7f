"""`ccal evaluate` on the run's own pairs and on others."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import SMALL, invoke


def test_the_default_is_what_training_printed(trained: Path) -> None:
    outcome = invoke("evaluate", trained / "run", "--json")
    assert outcome.code == 0, outcome
    kept = json.loads((trained / "run" / "evaluation.json").read_text())
    for about in ("facts", "validation", "data_sha256", "split_sha256", "files", "sha256"):
        kept.pop(about)
    assert json.loads(outcome.out) == kept


@pytest.mark.parametrize(("part", "queries"), [("train", 192), ("valid", 24), ("all", 240)])
def test_other_parts_of_the_split(trained: Path, part: str, queries: int) -> None:
    outcome = invoke("evaluate", trained / "run", "--split", part, "--json", "--bootstrap", 0)
    content = json.loads(outcome.out)
    assert f"training has used the {part} pairs" in outcome.err
    assert content["part"] == part
    assert content["x_to_y"]["queries"] == queries
    assert content["x_to_y"]["low"] is None


def test_pessimistic_ties_are_said(trained: Path) -> None:
    assert "pessimistic ties" in invoke("evaluate", trained / "run", "--ties", "pessimistic").out


def test_it_works_from_anywhere(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = ["--x", "image.npy", "--y", "text.npy"]
    trained = invoke("train", *arrays, "--method", "linear", "-o", "run", *SMALL)
    (files / "elsewhere").mkdir()
    monkeypatch.chdir(files / "elsewhere")
    assert invoke("evaluate", "../run").out == trained.out


def test_a_page(trained: Path, tmp_path: Path) -> None:
    outcome = invoke("evaluate", trained / "run", "--report", tmp_path / "new" / "page.html")
    assert outcome.code == 0, outcome
    assert "image → text" in (tmp_path / "new" / "page.html").read_text()


def test_trec_files(trained: Path, tmp_path: Path) -> None:
    outcome = invoke("evaluate", trained / "run", "--trec", tmp_path, "-k", 5)
    assert outcome.code == 0, outcome
    assert len((tmp_path / "image-to-text.run").read_text().splitlines()) == 24 * 5
    assert len((tmp_path / "text-to-image.qrels").read_text().splitlines()) == 24


def test_trec_files_of_groups(files: Path) -> None:
    columns = ["--x", "image=image.npy", "--y", "text=captions"]
    assert invoke("train", "pairs.jsonl", *columns, "-o", "run", *SMALL).code == 0
    assert invoke("evaluate", "run", "--trec", "trec", "-k", 3).code == 0
    assert len(Path("trec/image-to-text.run").read_text().splitlines()) == 24 * 3
    # Pictures share captions, and each different one is a query.
    queries = json.loads(Path("run/evaluation.json").read_text())["y_to_x"]["queries"]
    assert 0 < queries < 48
    assert len(Path("trec/text-to-image.run").read_text().splitlines()) == queries * 3


def test_other_pairs(trained: Path, files: Path) -> None:
    np.save("other.npy", np.load("image.npy")[:50])
    np.save("words.npy", np.load("text.npy")[:50])
    others = ["--x", "image=other.npy", "--y", "text=words.npy"]
    outcome = invoke("evaluate", trained / "run", *others, "--json")
    assert outcome.code == 0, outcome
    content = json.loads(outcome.out)
    assert (content["part"], content["x_to_y"]["queries"]) == ("all", 50)
    assert invoke("evaluate", trained / "run", *others, "--split", "test").code == 2


def test_other_modalities_are_refused(trained: Path, files: Path) -> None:
    outcome = invoke("evaluate", trained / "run", "--x", "photo=image.npy", "--y", "text.npy")
    assert outcome.code == 2
    assert "joins image and text, these pairs are of photo and text" in outcome.err


def test_changed_data_are_refused_unless_forced(files: Path) -> None:
    arrays = ["--x", "image.npy", "--y", "text.npy"]
    assert invoke("train", *arrays, "-o", "run", *SMALL).code == 0
    image = np.load("image.npy")
    image[5] = 0
    np.save("image.npy", image)
    outcome = invoke("evaluate", "run")
    assert outcome.code == 2
    assert "The data have changed since run was trained" in outcome.err
    assert "--force" in outcome.err
    forced = invoke("evaluate", "run", "--force")
    assert forced.code == 0
    assert "warning: The data have changed" in forced.err


BAD = {
    "no run": (["nothing"], "nothing: there is no such folder; expected the folder of a run."),
    "not a run": (["folder"], "folder is no run: config.toml is missing."),
    "its parent": (["."], "It holds broken"),
    "damaged config": (["broken"], "not a readable TOML file"),
    "bootstrap": (
        ["RUN", "--bootstrap", "1"],
        "bootstrap must be 0 or a whole number of at least 2, got bootstrap=1.",
    ),
    "k": (["RUN", "--trec", "t", "-k", "0"], "-k must be 1 or more, got 0."),
    "report": (["RUN", "--report", "page.pdf"], "expected a file that ends in .html"),
    "one modality": (["RUN", "--x", "image.npy"], "--y missing"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case: str, trained: Path, files: Path) -> None:
    Path("folder").mkdir()
    shutil.copytree(trained / "run", "broken")
    Path("broken/config.toml").write_text("[run\n")
    arguments, message = BAD[case]
    outcome = invoke("evaluate", *(trained / "run" if a == "RUN" else a for a in arguments))
    assert outcome.code == 2, outcome
    assert message in outcome.err


def test_a_damaged_model_is_named(trained: Path, files: Path) -> None:
    shutil.copytree(trained / "run", "run")
    (weights,) = Path("run/model").glob("*.safetensors")
    weights.write_bytes(weights.read_bytes()[:100])
    outcome = invoke("evaluate", "run")
    assert outcome.code == 2
    assert "The model in 'run/model' is damaged" in outcome.err
