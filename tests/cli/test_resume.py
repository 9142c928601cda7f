"""Stopping a run by a signal, and going on to the same end."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from ccal.files import alone_in
from ccal.runs import Run
from tests.cli.conftest import Outcome, environment, invoke, make_files, start

ARRAYS = ["--x", "image.npy", "--y", "text.npy"]
SMALL = [*ARRAYS, "--method", "ccal", "--dim", "8", "--batch-size", "96", "-q", "--no-report"]
LONG = ["train", *SMALL, "--epochs", "100", "--set", "patience=9999", "--set", "train_on_all=false"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A long run that nobody stopped, next to its files; not to be changed."""
    folder = tmp_path_factory.mktemp("whole")
    make_files(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        outcome = invoke(*LONG, "-o", "run")
    assert outcome.code == 0, outcome
    return folder / "run"


def stopped(folder: Path, number: int) -> Outcome:
    """The long run again, with a signal after some epochs."""
    process = start(*LONG, "-o", "run", cwd=folder)
    metrics, deadline = folder / "run" / "metrics.jsonl", time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if metrics.is_file() and len(metrics.read_text().splitlines()) >= 3:
            break
        time.sleep(0.01)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    return Outcome(process.returncode, out, err)


def assert_same_end(run: Path, whole: Path) -> None:
    x = np.load(run.parent / "image.npy")
    one, two = (Run.open(path) for path in (run, whole))
    assert bool((one.model().encode("image", x) == two.model().encode("image", x)).all())
    assert one.evaluation()["x_to_y"] == two.evaluation()["x_to_y"]
    assert [r["loss"] for r in one.metrics()] == [r["loss"] for r in two.metrics()]


def test_ctrl_c_then_resume(files: Path, whole: Path) -> None:
    outcome = stopped(files, signal.SIGINT)
    assert outcome.code == 130, outcome
    assert "stopped; continue with: ccal train --resume -o run" in outcome.err
    assert "Traceback" not in outcome.err
    refused = invoke("evaluate", "run")
    assert refused.code == 2
    assert "has not finished; continue it with: ccal train --resume -o run" in refused.err
    assert "not finished" in invoke("info", "run").out
    before = Path("run/metrics.jsonl").read_text().splitlines()
    assert 3 <= len(before) < 100
    assert list(Path("run").glob("checkpoint-*.pt"))
    resumed = invoke("train", "--resume", "-o", "run", "--no-report")
    assert resumed.code == 0, resumed
    assert f"Goes on   after epoch {json.loads(before[-1])['epoch']} of training\n" in resumed.err
    # The seconds of the first epochs are still there: it went on, and did not begin again.
    assert Path("run/metrics.jsonl").read_text().splitlines()[: len(before)] == before
    assert not list(Path("run").glob("checkpoint-*.pt"))
    assert_same_end(Path("run").absolute(), whole)
    again = invoke("train", "--resume", "-o", "run")
    assert again.code == 0
    assert "has finished already" in again.err


@pytest.mark.slow  # tests/training/test_checkpoint.py kills training at any moment
def test_a_killed_run_resumes(files: Path, whole: Path) -> None:
    assert stopped(files, signal.SIGKILL).code == -signal.SIGKILL
    assert not Run.open("run", finished=False).finished
    assert invoke("train", "--resume", "-o", "run", "-q", "--no-report").code == 0
    assert_same_end(Path("run").absolute(), whole)


def test_a_run_has_one_process_until_it_is_killed(files: Path) -> None:
    process = start(*LONG, "-o", "run", cwd=files)
    metrics, deadline = files / "run" / "metrics.jsonl", time.monotonic() + 60
    while time.monotonic() < deadline and not metrics.is_file():
        time.sleep(0.01)
    process.send_signal(signal.SIGSTOP)  # so that it cannot end meanwhile
    resumed = invoke("train", "--resume", "-o", "run", "-q")
    assert resumed.code == 2
    assert "another process is at work in run;" in resumed.err
    process.kill()
    process.communicate(timeout=60)
    with alone_in(files / "run"):
        pass


@pytest.mark.slow
def test_a_term_signal_has_its_own_code(files: Path) -> None:
    outcome = stopped(files, signal.SIGTERM)
    assert outcome.code == 143, outcome


@pytest.fixture
def begun(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that has not come to its end, next to its files, where one stands."""
    shutil.copytree(whole.parent, tmp_path / "begun")
    monkeypatch.chdir(tmp_path / "begun")
    config = Path("run/config.toml")
    config.write_text(config.read_text().replace(str(whole.parent), str(tmp_path / "begun")))
    Path("run/evaluation.json").unlink()
    return Path("run")


def test_a_full_folder_is_never_written_to(begun: Path) -> None:
    before = {path: path.read_bytes() for path in begun.rglob("*") if path.is_file()}
    outcome = invoke("train", *ARRAYS, "-o", "run")
    assert outcome.code == 2
    assert "run is not empty; continue it with --resume, or name another folder" in outcome.err
    assert before == {path: path.read_bytes() for path in begun.rglob("*") if path.is_file()}


def test_resume_refuses_other_settings_and_names_them(begun: Path) -> None:
    outcome = invoke("train", "--resume", "-o", "run", "--seed", 3, "--valid", 0.2)
    assert outcome.code == 2
    assert "seed was 0, now it is 3; valid was 0.1, now it is 0.2" in outcome.err


def test_resume_refuses_changed_data(begun: Path) -> None:
    image = np.load("image.npy")
    image[0, 0] += 1
    np.save("image.npy", image)
    outcome = invoke("train", "--resume", "-o", "run")
    assert outcome.code == 2
    assert "The data have changed since run was trained" in outcome.err


@pytest.mark.slow
def test_a_comparison_goes_on_after_ctrl_c(files: Path) -> None:
    options = [*ARRAYS, "--dim", "8", "--batch-size", "96", "-q", "--no-report", "-o", "out"]
    options += ["--methods", "linear,ccal", "--seeds", "0", "--epochs", "150"]
    options += ["--set", "patience=9999", "--set", "train_on_all=false"]
    process = start("compare", *options, cwd=files)
    metrics, deadline = files / "out/ccal-0/metrics.jsonl", time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if metrics.is_file() and len(metrics.read_text().splitlines()) >= 3:
            break
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "run the same command again" in err
    done = Path("out/linear-0/evaluation.json").stat().st_mtime_ns
    before = metrics.read_text().splitlines()
    outcome = invoke("compare", *options)
    assert outcome.code == 0, outcome
    assert Path("out/linear-0/evaluation.json").stat().st_mtime_ns == done
    assert metrics.read_text().splitlines()[: len(before)] == before
    assert len(json.loads(Path("out/comparison.json").read_text())["rows"]) == 4


def test_two_processes_train_as_one(files: Path) -> None:
    # Without dropout, whose masks each process draws for its own rows.
    options = [*SMALL, "--epochs", "2", "--set", "dropout_x=0", "--set", "dropout_y=0"]
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--standalone"]
    command += ["-m", "ccal", "train", *options, "-o", "two"]
    result = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=120)
    assert result.returncode == 0, result.stderr
    # Two processes that knew nothing of each other would both print.
    assert result.stdout.count("R@10") == 1
    assert invoke("train", *options, "-o", "one").code == 0
    one, two = (
        Run.open(name).model().encode("image", np.load("image.npy")) for name in ("one", "two")
    )
    np.testing.assert_allclose(one.numpy(), two.numpy(), rtol=1e-4, atol=1e-5)
