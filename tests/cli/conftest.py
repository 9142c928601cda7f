"""Small pairs in real files, and the command line in this process or in one of its own."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

ROOT = Path(__file__).parents[2]
# Without the sentence network, which would take seconds.
SMALL = ["--set", "text=tfidf", "--epochs", "2", "--batch-size", "100", "-q", "--no-report"]


class Outcome:
    """How a command ended: exit code, stdout, stderr."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def __repr__(self) -> str:
        return f"exit {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


def invoke(*arguments: object) -> Outcome:
    """Run `ccal` in this process; what is no error of the user is raised."""
    from ccal.cli.app import app

    width = {"COLUMNS": "100"}
    result = CliRunner().invoke(app, list(map(str, arguments)), prog_name="ccal", env=width)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    # Colours, which some CI machines ask for, are no part of what is said.
    out, err = (re.sub(r"\x1b\[[0-9;]*m", "", text) for text in (result.stdout, result.stderr))
    return Outcome(result.exit_code, out, err)


def environment() -> dict[str, str]:
    """For a process that is to find this clone's ccal."""
    path = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    # Unbuffered output would hide what goes wrong in the last flush.
    others = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return {**others, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "COLUMNS": "100"}


def start(*arguments: object, cwd: Path) -> subprocess.Popen[str]:
    """Start `python -m ccal` in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "ccal", *map(str, arguments)],
        cwd=cwd,
        env=environment(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def spawn(*arguments: object, cwd: Path) -> Outcome:
    """Run `python -m ccal` to its end."""
    process = start(*arguments, cwd=cwd)
    out, err = process.communicate(timeout=120)
    return Outcome(process.returncode, out, err)


def make_files(folder: Path, n: int = 240) -> None:
    """image.npy, text.npy, pairs.csv and pairs.jsonl of the same n things."""
    rng = np.random.default_rng(0)
    words = [w.split() for w in ("red blue green", "bird dog cat", "runs sits flies", "here there")]
    kinds = np.stack([rng.integers(len(w), size=n) for w in words], axis=1)
    meaning = np.concatenate(
        [np.eye(3)[kinds[:, i]] for i in range(3)] + [np.eye(2)[kinds[:, 3]]], 1
    )
    meaning = np.concatenate([meaning, rng.normal(size=(n, 3))], axis=1)
    image = meaning @ rng.normal(size=(14, 20)) + 0.1 * rng.normal(size=(n, 20))
    text = meaning @ rng.normal(size=(14, 16)) + 0.1 * rng.normal(size=(n, 16))
    np.save(folder / "image.npy", image.astype(np.float32))
    np.save(folder / "text.npy", text.astype(np.float32))
    captions = [" ".join(w[k] for w, k in zip(words, row, strict=True)) for row in kinds]
    parts = np.where(np.arange(n) % 5 == 0, "test", "train")
    with (folder / "pairs.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["caption", "kind", "part", "photo"])
        for i, caption in enumerate(captions):
            writer.writerow([caption, kinds[i, 1], parts[i], f"photo{i // 2}"])
    with (folder / "pairs.jsonl").open("w") as file:
        for caption in captions:
            file.write(f'{{"captions": ["{caption}", "a {caption}"]}}\n')


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files and a finished run of the two arrays, `run`; not to be changed."""
    folder = tmp_path_factory.mktemp("trained")
    make_files(folder)
    files = ["--x", folder / "image.npy", "--y", folder / "text.npy"]
    outcome = invoke("train", *files, "-o", folder / "run", *SMALL[:-1])
    assert outcome.code == 0, outcome
    return folder


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files, in which one stands."""
    make_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def forget_hashes(run: Path) -> None:
    """Let a finished run be as earlier versions wrote it, without hashes of its files."""
    path = run / "evaluation.json"
    content = json.loads(path.read_text())
    del content["files"], content["sha256"]
    path.write_text(json.dumps(content))
