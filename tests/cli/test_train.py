"""`ccal train` on real files."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import ccal
from ccal.data import read_source
from ccal.runs import Run
from tests.cli.conftest import SMALL, environment, invoke

ARRAYS = ["--x", "image.npy", "--y", "text.npy"]
TABLE = ["pairs.csv", "--x", "image=image.npy", "--y", "caption"]


def config_of(run: str | Path) -> dict[str, dict[str, object]]:
    return tomllib.loads(Path(run, "config.toml").read_text())


def test_the_run_folder_can_be_read(trained: Path) -> None:
    run = trained / "run"
    names = {path.name for path in run.iterdir()}
    assert names == {
        *("config.toml", "metrics.jsonl", "model", "evaluation.json", "report.html", "plots"),
        *("dimensions.json", ".lock"),
    }
    config = config_of(run)
    assert config["train"]["method"] == "refined"
    assert config["train"]["max_epochs"] == 2
    assert config["found"]["modalities"] == ["image", "text"]
    assert [config["found"][name] for name in ("train", "valid", "test")] == [192, 24, 24]
    assert config["run"]["ccal"] == ccal.__version__
    evaluation = json.loads((run / "evaluation.json").read_text())
    assert evaluation["part"] == "test"
    assert evaluation["x_to_y"]["name"] == "image -> text"
    assert evaluation["x_to_y"]["mrr"] > 50
    assert 0 <= evaluation["correlations"]["held_out_mean"] <= 1
    assert all("epoch" in json.loads(line) for line in (run / "metrics.jsonl").open())


def test_it_prints_the_table_and_names_the_folder(files: Path) -> None:
    outcome = invoke("train", *ARRAYS, "--epochs", 1, "--method", "linear")
    assert outcome.code == 0, outcome
    assert "image -> text" in outcome.out
    lines = [line.split(maxsplit=1) for line in outcome.err.splitlines()]
    assert [first for first, _ in lines[:6]] == [
        *("Pairs", "Split", "Features", "Method", "Time", "Results")
    ]
    assert lines[0][1] == "240 of image and text, from image.npy and text.npy"
    assert lines[3][1].startswith("linear: linear CCA, in closed form")
    assert lines[5][1] == "runs/image-linear"
    assert Path("runs/image-linear/model/config.json").is_file()


def on_a_terminal(*arguments: object, cwd: Path) -> str:
    """What `ccal` writes to a terminal of 120 columns."""
    pty = pytest.importorskip("pty", reason="no pseudo-terminals here")
    main, other = pty.openpty()
    env = {**environment(), "COLUMNS": "120", "TERM": "xterm-256color"}
    command = [sys.executable, "-m", "ccal", *map(str, arguments)]
    process = subprocess.Popen(command, cwd=cwd, env=env, stdout=other, stderr=other)
    os.close(other)
    shown = b""
    # Linux ends the reading of a terminal that nobody writes to with an error.
    with suppress(OSError):
        while part := os.read(main, 4096):
            shown += part
    os.close(main)
    assert process.wait(timeout=60) == 0, shown.decode()
    return shown.decode()


def test_a_terminal_sees_the_plan_and_one_progress(files: Path) -> None:
    options = ["--epochs", 30, "--batch-size", 20, "--no-report", "--text", "tfidf"]
    shown = on_a_terminal("train", *TABLE, *options, "-o", "run", cwd=files)
    plan, rest = shown.split("Results")
    assert "caption: TF-IDF of words" in plan
    assert "words of the training texts are features" in rest
    # One line, rewritten: it ends where the table begins.
    work = rest[: rest.index("image -> caption")]
    assert work.count("\n") <= 3
    shares = [int(share) for share in re.findall(r"(\d+)%  ", work)]
    assert shares == sorted(shares)
    assert shares
    assert "epoch" in work
    assert " left" in work
    assert all(" left" not in line for line in rest[rest.index("image -> caption") :].splitlines())


def test_quiet_prints_the_result_only(files: Path) -> None:
    outcome = invoke("train", *TABLE, "-o", "run", *SMALL, "--method", "linear")
    assert outcome.err == ""
    assert outcome.out.split()[:3] == ["image", "->", "caption"]


def test_a_table_with_texts_an_array_and_a_split_column(files: Path) -> None:
    options = ["--split-column", "part", "--label", "kind", "--valid", "30"]
    outcome = invoke("train", *TABLE, *options, "-o", "run", *SMALL)
    assert outcome.code == 0, outcome
    found = config_of("run")["found"]
    assert (found["train"], found["valid"], found["test"]) == (162, 30, 48)
    assert "image -> caption" in outcome.out


def test_groups_stay_together_and_captions_become_pairs(files: Path) -> None:
    options = ["--x", "image=image.npy", "--y", "text=captions", "-o", "run"]
    outcome = invoke("train", "pairs.jsonl", *options, *SMALL)
    assert outcome.code == 0, outcome
    found = config_of("run")["found"]
    assert (found["pairs"], found["test"]) == (480, 48)
    data = read_source(Run.open("run").source)
    assert data.pairs.group is not None
    assert not set(data.part("train").group) & set(data.part("test").group)  # type: ignore[arg-type]


def test_fast_trains_nothing(files: Path) -> None:
    outcome = invoke("train", *ARRAYS, "--fast", "--no-report", "-o", "run")
    assert outcome.code == 0, outcome
    assert "refined: linear CCA, in closed form" in outcome.err
    run = Run.open("run")
    assert run.settings == ccal.Settings.preset("fast")
    assert run.metrics() == []
    assert "hub correction" in json.loads(Path("run/evaluation.json").read_text())["facts"]
    outcome = invoke("train", *ARRAYS, "--fast", "--method", "ccal", "-o", "other")
    assert outcome.code == 2
    assert "--fast is the default method without its training" in outcome.err


def test_flags_win_over_set_over_file_over_preset(files: Path) -> None:
    Path("my.toml").write_text(
        '[train]\npreset = "paper"\nmax_epochs = 3\nmargin = 0.2\nseed = 4\n'
    )
    options = ["--config", "my.toml", "--set", "seed=5", "--set", "margin=0.3", "--seed", 6]
    more = ["--epochs", 1, "--batch-size", 100, "--dim", 8, "--set", "hidden_y=[16]", "-q"]
    outcome = invoke("train", *ARRAYS, *options, *more, "-o", "run")
    assert outcome.code == 0, outcome
    settings = Run.open("run").settings
    assert (settings.method, settings.patience) == ("ccal", 50)
    assert (settings.max_epochs, settings.margin, settings.seed) == (1, 0.3, 6)
    assert settings.hidden_y == (16,)


def test_config_of_a_run_repeats_it(trained: Path, tmp_path: Path) -> None:
    config = trained / "run" / "config.toml"
    outcome = invoke("train", "--config", config, "-o", tmp_path / "again", "-q")
    assert outcome.code == 0, outcome
    one, two = (Run.open(p) for p in (trained / "run", tmp_path / "again"))
    assert one.settings == two.settings
    assert one.found == two.found
    x = np.load(trained / "image.npy")
    assert bool((one.model().encode("image", x) == two.model().encode("image", x)).all())


def test_without_test_pairs_validation_pairs_are_shown(files: Path) -> None:
    outcome = invoke("train", *ARRAYS, "--test", "0", "-o", "run", *SMALL)
    assert outcome.code == 0, outcome
    assert "no test pairs" in outcome.err
    assert json.loads(Path("run/evaluation.json").read_text())["part"] == "valid"


def test_bad_rows_are_refused_or_skipped(files: Path) -> None:
    image = np.load("image.npy")
    image[[3, 7], 0] = np.nan
    np.save("image.npy", image)
    outcome = invoke("train", *ARRAYS, "-o", "run", *SMALL)
    assert outcome.code == 2
    assert "2 NaN or infinite values in 2 of 240 rows (counted from 0: 3, 7)" in outcome.err
    for data in (ARRAYS, TABLE):
        outcome = invoke("train", *data, "--skip-bad-rows", "-o", f"run-{data[0]}", *SMALL)
        assert outcome.code == 0, outcome
        assert "left out" in outcome.err
        assert config_of(f"run-{data[0]}")["found"]["pairs"] == 238


BAD = {
    "no data": ([], "--x and --y missing"),
    "one modality": (["--x", "image.npy"], "--y missing"),
    "missing file": (["--x", "imgae.npy", "--y", "text.npy"], "imgae.npy: no such file."),
    "wrong suffix": (["--x", "head.csv", "--y", "text.npy"], "expected a .npy or .npz file"),
    "rows": (["--x", "short.npy", "--y", "text.npy"], "short.npy has 9 rows and"),
    "column": (["pairs.csv", "--x", "image=image.npy", "--y", "captoin"], "mean 'caption'"),
    "empty table": (["empty.csv", "--x", "a", "--y", "b"], "empty.csv: the file is empty."),
    "header only": (["head.csv", "--x", "a", "--y", "b"], "a header, but no rows"),
    "both arrays": (["pairs.csv", *ARRAYS], "both array files"),
    "same name": (["--x", "a=image.npy", "--y", "a=text.npy"], "both called 'a'"),
    "taken name": (["--x", "dim=image.npy", "--y", "text.npy"], "cannot be called 'dim'"),
    "label without table": ([*ARRAYS, "--label", "kind"], "label belongs to a table"),
    "valid": ([*ARRAYS, "--valid", "many"], "--valid must be a fraction or a whole number"),
    "no valid": ([*ARRAYS, "--valid", "0"], "raise --valid"),
    "too much": ([*ARRAYS, "--valid", "0.5", "--test", "0.5"], "leave nothing of 240"),
    "setting": ([*ARRAYS, "--set", "margn=1"], "did you mean 'margin'?"),
    "no value": ([*ARRAYS, "--set", "margin"], "--set takes NAME=VALUE"),
    "wrong type": ([*ARRAYS, "--set", "margin=wide"], "margin must be a finite number"),
    "batch size": ([*ARRAYS, "--batch-size", "1"], "batch_size must be a whole number"),
    "epochs": ([*ARRAYS, "--epochs", "0"], "max_epochs must be a whole number of at least 1"),
    "dim": ([*ARRAYS, "--dim", "0"], "dim must be a whole number of at least 1"),
    "no config": ([*ARRAYS, "--config", "no.toml"], "no.toml: no such file."),
    "not empty": ([*ARRAYS, "-o", "full"], "full is not empty; name another folder"),
    "is a file": ([*ARRAYS, "-o", "pairs.csv"], "pairs.csv is a file"),
    "classes": (
        ["pairs.csv", "--x", "image=image.npy", "--y", "text=caption", "--select", "classes"],
        "--select classes needs the classes of the pairs: name the column of TABLE that has them "
        "with --label COLUMN",
    ),
    "name": (["--x", "my photo=image.npy", "--y", "text.npy"], "as in my_photo=image.npy."),
    "name of a column": (
        ["pairs.csv", "--x", "image=image.npy", "--y", "my text=caption"],
        "as in my_text=caption.",
    ),
    "semicolons": (
        ["semi.csv", "--x", "image=image.npy", "--y", "text=caption"],
        "Is the file separated by ';'?",
    ),
    "range": (["--x", "large.npy", "--y", "text.npy"], "large.npy: values beyond float32"),
    "resume what": ([*ARRAYS, "--resume"], "--resume needs --out"),
    "resume nothing": (["--resume", "-o", "full"], "full is no run: config.toml is missing."),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_met_at_the_door(case: str, files: Path) -> None:
    np.save("short.npy", np.ones((9, 3), dtype=np.float32))
    Path("empty.csv").touch()
    Path("head.csv").write_text("a,b\n")
    Path("semi.csv").write_text("id;caption\n1;red bird\n2;blue dog\n")
    large = np.load("image.npy").astype(np.float64)
    large[3] = 1e300
    np.save("large.npy", large)
    Path("full").mkdir()
    Path("full/precious.txt").write_text("mine")
    arguments, message = BAD[case]
    outcome = invoke("train", *arguments)
    assert outcome.code == 2, outcome
    assert outcome.out == ""
    assert outcome.err.startswith("error: ")
    assert message in outcome.err
    assert not Path("runs").exists()
    assert [p.name for p in Path("full").iterdir()] == ["precious.txt"]


BAD_FILES = {
    "[train]\nmargn = 1": "my.toml: [train] has no 'margn'; did you mean 'margin'?",
    "[train]\nvalid = 0.2": "my.toml: [train] has no 'valid'; it belongs below [data].",
    "[tain]\nseed = 1": "my.toml: there is no table [tain]; did you mean 'train'?",
    "seed = 1": "my.toml: 'seed' stands outside of a table; put it below [train].",
    "[train]\nseed = 'a'": "my.toml [train]: seed must be a whole number of at least 0",
    "[train]\nloss = 'hinge'": "my.toml [train]: loss must be one of",
    "[train]\npreset = 'mine'": "preset must be one of default, fast, paper",
    "[data]\nvalid = 'a'": "my.toml [data]: valid must be a finite number of at least 0",
    "[data]\nx = 3": "my.toml [data]: x must be text, got x=3.",
    "[data]\ncaptions = 'both'": "my.toml [data]: captions must be",
    "[train\n": "my.toml: not a readable TOML file",
}


@pytest.mark.parametrize("content", BAD_FILES)
def test_bad_config_files_name_file_table_and_key(content: str, files: Path) -> None:
    Path("my.toml").write_text(content)
    outcome = invoke("train", *ARRAYS, "--config", "my.toml")
    assert outcome.code == 2
    assert BAD_FILES[content] in outcome.err


def test_data_of_a_config_file_lie_next_to_it(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("my.toml").write_text(
        '[data]\nx = "image.npy"\ny = "no.npy"\n[train]\nmethod = "linear"\n'
    )
    elsewhere = files / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    np.save("mine.npy", np.load("../text.npy"))
    outcome = invoke("train", "--config", "../my.toml", "--y", "text=mine.npy", "-o", "run", "-q")
    assert outcome.code == 0, outcome
    assert read_source(Run.open("run").source).facts() == Run.open("run").found


def test_pairs_of_a_group_may_differ_in_both_items(files: Path) -> None:
    groups = ["--group", "photo", "--split-by", "group", "--method", "linear"]
    outcome = invoke("train", *TABLE, *groups, "-o", "run", *SMALL)
    assert outcome.code == 0, outcome
