"""`ccal reproduce` on small data in the layouts that it reads: every kind of table, all options."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from typer.testing import CliRunner

from ccal.cli.app import app
from ccal.errors import InputError
from ccal.experiments import paper_data
from ccal.experiments.cells import Cell, Task, kept_result, run_cell
from ccal.experiments.paper_tables import BUDGETS, TABLES, Plan, table_of
from ccal.experiments.reproduction import list_tables, reproduce
from ccal.music import SheetAudioPairs, SheetAudioStore
from ccal.training import Settings
from tests.data.published.small_sets import WRITERS
from tests.data.published.small_sets import features as small_features

WORDS = ["red", "blue", "green", "small", "large", "old", "dog", "cat", "bird", "boat", "runs"]


def write_pairs(folder: Path, *, classes: int = 0, n: int = 120) -> Path:
    """pairs.jsonl and image_features.npy, with a split or with classes."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    meaning = rng.normal(size=(classes or n, 6))
    rows = np.arange(n) % (classes or n)
    lines = []
    for row in range(n):
        own = rng.choice(WORDS, 6, p=_likely(meaning[rows[row]]))
        record: dict[str, Any] = {"file": f"{row}.jpg", "captions": [" ".join(own), "a " + own[0]]}
        if classes:
            record["class"] = f"class {rows[row]:02}"
        else:
            record["split"] = "train" if row < 0.8 * n else "dev"
        lines.append(json.dumps(record))
    (folder / "pairs.jsonl").write_text("\n".join(lines) + "\n")
    features = meaning[rows] @ rng.normal(size=(6, 20)) + rng.normal(size=(n, 20))
    np.save(folder / "image_features.npy", features.astype(np.float32))
    return folder


def _likely(meaning: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    scores = np.exp(np.resize(meaning, len(WORDS)))
    return np.asarray(scores / scores.sum())


QUICK = {"max_epochs": 2, "batch_size": 60, "dim": 4, "min_count": 1}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pairs(tmp_path_factory.mktemp("photos"))


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)])


def quick_options(**more: object) -> list[str]:
    settings = {**QUICK, **more}
    return [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]


def test_the_list_names_every_table_and_what_it_needs() -> None:
    text = list_tables()
    for table in TABLES.values():
        assert f"{table.name}  (" in text
        assert table.needs in text
        assert Plan("small").minutes(table) < Plan("medium").minutes(table) < Plan().minutes(table)
    result = invoke()
    assert result.exit_code == 0
    assert [line for line in result.output.splitlines() if "takes" not in line] == [
        line for line in text.splitlines() if "takes" not in line
    ]


def test_published_rows_are_those_of_the_paper() -> None:
    assert TABLES["iapr-tc12"].published["DCCA-2015"][:2] == (30.2, 57.0)
    assert TABLES["flickr30k"].published["CCAL-Lrank"][4] == 44.8
    assert TABLES["nottingham"].published["CCAL-Lrank"][9] == 64.9
    assert TABLES["nottingham-10pct"].published["Learned-Lrank"][0] == 11.3
    assert TABLES["cub"].published["Word CNN + CCAL-Lrank"] == (52.2,)
    assert TABLES["flowers"].published["Word CNN-RNN (Reed 2016)"] == (59.6,)
    for table in TABLES.values():
        assert {"linear", "ours"} <= set(table.rows)
        for cells in table.published.values():
            assert len(cells) == (1 if table.kind == "zero-shot" else 10)


def test_the_default_settings_are_the_papers() -> None:
    def of(table: str, row: str, **plan: Any) -> Any:
        return Plan(**plan).settings(table_of(table), row, 0)

    assert of("flickr30k", "learned").learning_rate == 1e-3
    assert of("flickr30k", "ccal").learning_rate == of("flickr30k", "dcca").learning_rate == 2e-3
    assert of("iapr-tc12", "dcca").learning_rate == 1e-3
    for row in ("ccal", "dcca", "learned"):
        for table in ("iapr-tc12", "nottingham"):
            own = of(table, row)
            assert (own.batch_size, own.direction, own.reduction) == (1000, "x->y", "sum")
            assert (own.patience, own.refine_patience, own.refinements) == (50, 10, 3)
            assert own.refit_pairs is None
            assert own.epoch_pairs is None
        music = of("nottingham", row)
        assert (music.weight_decay, music.margin, music.stride, music.dim) == (0.0, 0.7, 1, 32)
        assert of("iapr-tc12", row).weight_decay == 2e-4
    birds = of("cub", "crnn-ccal")
    assert (birds.learning_rate, birds.margin, birds.decay, birds.dim) == (1e-2, 0.2, "all", 64)
    assert of("cub", "cnn-learned").learning_rate == 7e-4
    ours = of("cub", "crnn-tuned", changes={"max_epochs": 3, "margin": 1.0})
    assert (ours.text, ours.loss, ours.power, ours.max_epochs) == ("word-crnn", "infonce", 1.0, 3)
    assert ours.margin == Settings.preset("ccal-words").margin
    released = of("iapr-tc12", "learned", variant="released")
    assert (released.reduction, released.direction) == ("mean", "both")
    assert of("iapr-tc12", "ccal", variant="released").direction == "x->y"
    assert Plan().differences(table_of("nottingham"), "ccal") == []
    # All rows of a table learn from the same pairs.
    for each in TABLES.values():
        assert not any(of(each.name, row).train_on_all for row in each.rows)


def test_what_differs_is_named() -> None:
    table = table_of("nottingham")
    assert "stride 2 (paper: 1)" in Plan("small").differences(table, "ccal")
    assert "margin 1 (paper: 0.7)" in Plan(changes={"margin": 1.0}).differences(table, "ccal")
    for budget in ("medium", "small"):
        for kind in ("image-text", "sheet-audio", "zero-shot"):
            assert BUDGETS[budget][kind]
    for wrong in ({"budget": "huge"}, {"variant": "x"}, {"changes": {"seed": 1}}):
        with pytest.raises(InputError):
            Plan(**wrong)


def test_an_image_text_table_comes_out_whole(photos: Path, tmp_path: Path) -> None:
    options = ["--methods", "linear,ccal,dcca,learned", "--repeats", 2, "--jobs", 1, "-o", tmp_path]
    result = invoke("flickr30k", photos, *options, *quick_options())
    assert result.exit_code == 0, result.output
    first = "Settings that differ from the paper's: dim 4 (paper: 128)"
    assert first in result.output
    assert "CCAL-Lrank, paper  32.0" in re.sub(" +", "  ", result.output).replace(
        "  paper", " paper"
    )
    for name in ("table.txt", "table.md", "table.json", "table.html"):
        content = (tmp_path / name).read_text()
        assert "max_epochs 2 (paper: 1000)" in content
        assert "DCCA-2015" in content
    assert (tmp_path / "table.txt").read_text().startswith("Settings that differ")
    assert (tmp_path / "table.md").read_text().startswith("Settings that differ")
    content = json.loads((tmp_path / "table.json").read_text())
    assert next(iter(content)) == "differs"
    assert [run["seed"] for run in content["runs"] if run["row"] == "ccal"] == [0, 1]
    assert content["tests"]
    for run in content["runs"]:
        assert run["train"]["x_to_y"]["candidates"] == run["test"]["x_to_y"]["candidates"] == 24
        assert len(run["validation by epoch"]) == run["epochs"]
    for figure in ("correlation.svg", "curves.svg"):
        assert (tmp_path / figure).read_text().count("<path") > 3
    kept = (tmp_path / "ccal-0.json").read_bytes()
    again = invoke("flickr30k", photos, *options, *quick_options())
    assert again.stdout == result.stdout
    assert (tmp_path / "ccal-0.json").read_bytes() == kept
    other = invoke("flickr30k", photos, *options, *quick_options(margin=1))
    assert other.exit_code != 0
    assert "made with other settings or data (margin" in other.output


def test_a_grid_chooses_on_the_validation_pairs_and_is_shown(photos: Path, tmp_path: Path) -> None:
    options = ["--methods", "ccal,dcca", "--margins", "0.2,1", "--rates", "1e-6,1e-2", "--jobs", 1]
    result = invoke("flickr8k", photos, *options, "-o", tmp_path, *quick_options())
    assert result.exit_code == 0, result.output
    content = json.loads((tmp_path / "table.json").read_text())
    chosen = content["chosen by grid"]
    assert set(chosen["ccal"]) == {"margin", "learning_rate"}
    assert set(chosen["dcca"]) == {"learning_rate"}
    assert {chosen[row]["learning_rate"] for row in chosen} <= {1e-6, 1e-2}
    shown = result.output.split("Grid.")[1].split("\n\n")[0].splitlines()
    assert [line.split()[0] for line in shown[1:]] == ["method", "dcca", "ccal", "ccal"]
    assert sum(line.count("*") for line in shown[1:]) == 2
    used = {run["row"]: run["settings"]["learning_rate"] for run in content["runs"]}
    assert used == {row: chosen[row]["learning_rate"] for row in chosen}
    # The chosen point is not trained twice, and measures what a training with its values does.
    assert not list((tmp_path / "ccal-0").glob("metrics*"))
    same = quick_options(**chosen["ccal"])
    invoke("flickr8k", photos, "--methods", "ccal", "-o", tmp_path / "same", *same)
    (alone,) = json.loads((tmp_path / "same" / "table.json").read_text())["runs"]
    (found,) = (run for run in content["runs"] if run["row"] == "ccal")
    assert {n: found[n] for n in ("test", "train")} == {n: alone[n] for n in ("test", "train")}
    more = ["--methods", "learned", *options[2:], "-o", tmp_path, *quick_options()]
    assert invoke("flickr8k", photos, *more).exit_code == 0
    content = json.loads((tmp_path / "table.json").read_text())
    assert {run["row"] for run in content["runs"]} == {"dcca", "learned", "ccal"}
    wrong = invoke("flickr8k", photos, "--margins", "small", "-o", tmp_path)
    assert "--margins takes numbers with commas" in " ".join(str(wrong.output).split())


def test_what_is_refused_leaves_no_folder(photos: Path, tmp_path: Path) -> None:
    empty, out = tmp_path / "empty", tmp_path / "out"
    empty.mkdir()
    for table in ("iapr-tc12", "nottingham", "flowers"):
        assert invoke(table, empty, "-o", out).exit_code != 0
        assert invoke(table, tmp_path / "missing", "-o", out).exit_code != 0
    wrong = invoke("flickr8k", photos, "-o", out, "--set", "margn=1")
    assert "did you mean 'margin'?" in wrong.output
    assert invoke("flickr8k", photos, "-o", out, "--methods", "best").exit_code != 0
    assert not out.exists()


def test_a_zero_shot_table_has_both_networks(tmp_path: Path) -> None:
    birds = write_pairs(tmp_path / "birds", classes=24, n=240)
    options = ["--methods", "linear,cnn-ccal,crnn-learned,ours", "--jobs", 1]
    result = invoke("cub", birds, *options, "-o", tmp_path / "out", *quick_options(max_epochs=1))
    assert result.exit_code == 0, result.output
    assert "Word CNN + CCAL-Lrank, paper" in result.output
    assert "Attributes (Reed 2016), published" in result.output
    assert (
        "16 / 4 / 4 training, validation and test classes (paper: 100 / 50 / 50)" in result.output
    )
    content = json.loads((tmp_path / "out" / "table.json").read_text())
    assert {run["row"] for run in content["runs"]} == {"linear", "cnn-ccal", "crnn-learned", "ours"}
    assert all(0 <= run["test"]["ap"] <= 100 for run in content["runs"])
    curves = {run["row"]: run["validation by epoch"] for run in content["runs"]}
    best = {run["row"]: run["validation"] for run in content["runs"]}
    assert curves["cnn-ccal"] == [pytest.approx(best["cnn-ccal"], abs=0.01)]


@pytest.mark.slow
@pytest.mark.parametrize("rows", ["linear,ccal,tuned", "linear,ccal,tuned,ours"])
def test_sheet_music_and_sound(
    store: SheetAudioStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: str
) -> None:
    monkeypatch.setattr(paper_data, "_SMALL_TUNES", 6)
    options = ["--budget", "small", "-o", tmp_path, "--jobs", 1]
    changes = ["--set", "max_epochs=1", "--set", "batch_size=130"]
    result = invoke("nottingham-10pct", store.folder, *options, *changes, "--methods", rows)
    assert result.exit_code == 0, result.output
    assert "stride 2 (paper: 1)" in result.output
    assert "6 training tunes" in result.output
    content = json.loads((tmp_path / "table.json").read_text())
    test = SheetAudioPairs(store, paper_data.nottingham_split(store).test)
    for run in content["runs"]:
        assert run["test"]["x_to_y"]["candidates"] == len(test)
    settings = {run["row"]: run["settings"] for run in content["runs"]}
    assert (settings["tuned"]["margin"], settings["tuned"]["stride"]) == (1.0, 2)
    assert (settings["tuned"]["start"], settings["ccal"]["start"]) == ("linear", "random")
    assert "ours" not in settings or settings["ours"]["method"] == "refined"
    assert list((tmp_path / "examples").glob("sheet-*.png"))
    page = (tmp_path / "table.html").read_text()
    assert "data:image/png" in page or "data:image/jpeg" in page


def test_the_training_set_may_be_a_number_of_pairs(store: SheetAudioStore) -> None:
    each = len(SheetAudioPairs(store, [0]))
    data = paper_data.read_data(table_of("nottingham"), store.folder, Plan(pairs=100), None)
    assert 100 <= len(data.train) < 100 + each


@pytest.mark.parametrize(
    ("table", "layout"), [("flickr8k", "flickr8k"), ("cub", "reed"), ("flowers", "reed")]
)
def test_published_layouts_and_no_trained_row(
    tmp_path: Path, table: str, layout: Literal["flickr8k", "reed"]
) -> None:
    WRITERS[layout](tmp_path / "set")
    np.save(tmp_path / "features.npy", small_features())
    options = ["--features", tmp_path / "features.npy", "--methods", "linear"]
    result = invoke(table, tmp_path / "set", *options, "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "linear CCA, here" in result.output
    assert "CCAL against the others" not in result.output
    assert "Validation by epoch" not in (tmp_path / "out/table.html").read_text()
    shutil.rmtree(tmp_path / "set")
    WRITERS["coco"](tmp_path / "set")
    wrong = " ".join(invoke(table, tmp_path / "set", "-o", tmp_path / "other").output.split())
    assert wrong.count("missing") >= 2
    assert "of `ccal reproduce` --features" in wrong
    assert "pairs.jsonl" in wrong


def test_missing_data_are_described_file_by_file(tmp_path: Path) -> None:
    for name in TABLES:
        for place in (tmp_path / "nowhere", tmp_path):
            result = invoke(name, place, "-o", tmp_path / "out")
            assert result.exit_code != 0
            if TABLES[name].kind == "sheet-audio":
                assert ".mid" in result.output
                assert "Boulanger-Lewandowski" in result.output
            elif place.name == "nowhere":
                assert "pairs.jsonl" in result.output
        assert invoke(name).exit_code != 0
    flickr = invoke("flickr30k", tmp_path, "-o", tmp_path / "out").output
    assert "results_20130124.token" in flickr


def test_wrong_names_are_refused(photos: Path, tmp_path: Path) -> None:
    for arguments in (
        ["iapr", photos],
        ["flickr8k", photos, "--methods", "svm"],
        ["flickr8k", photos, "--methods", ","],
        ["flickr8k", photos, "--set", "margn=1"],
        ["flickr8k", photos, "--pairs", "10"],
    ):
        result = invoke(*arguments, "-o", tmp_path)
        assert result.exit_code != 0
        assert not isinstance(result.exception, AssertionError)
        assert "Traceback" not in result.output


def test_seeds_side_by_side_are_those_of_one_process(photos: Path, tmp_path: Path) -> None:
    plan = Plan(changes=QUICK)
    options: dict[str, Any] = {"rows": ["ccal", "dcca"], "progress": False}
    one = reproduce("flickr8k", photos, tmp_path / "one", plan, jobs=1, **options)
    two = reproduce("flickr8k", photos, tmp_path / "two", plan, jobs=2, **options)
    for row in ("ccal", "dcca"):
        assert one.found[row][0]["test"] == two.found[row][0]["test"]


@pytest.mark.slow
def test_a_killed_reproduction_goes_on_and_ends_the_same(photos: Path, tmp_path: Path) -> None:
    plan = Plan(changes={**QUICK, "max_epochs": 40, "patience": 40, "refinements": 0})
    arguments = [sys.executable, "-m", "ccal", "reproduce", "flickr8k", str(photos)]
    arguments += ["--methods", "ccal", "--jobs", "1", "-o", str(tmp_path / "killed")]
    for name, value in plan.changes.items():
        arguments += ["--set", f"{name}={value}"]
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    metrics = tmp_path / "killed" / "ccal-0" / "metrics.jsonl"
    deadline = time.monotonic() + 60
    while not (metrics.exists() and metrics.read_text().count("\n") >= 2):
        assert time.monotonic() < deadline
        assert process.poll() is None or (tmp_path / "killed" / "ccal-0.json").exists()
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    whole = Task("flickr8k", photos, plan, tmp_path / "whole")
    resumed = Task("flickr8k", photos, plan, tmp_path / "killed")
    cell = Cell("ccal", 0)
    expected = run_cell(whole, cell, progress=False)
    found = run_cell(resumed, cell, progress=False)
    assert kept_result(resumed, cell) == found
    assert found["test"] == expected["test"]
    assert found["validation"] == expected["validation"]
