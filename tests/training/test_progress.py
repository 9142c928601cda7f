from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from ccal.errors import CcalError
from ccal.training.progress import MetricsFile, Progress
from tests.training.stand_ins import run


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def train(stream: io.StringIO, *, step: float = 1.0, enabled: bool = True) -> Progress:
    """Three epochs of 4 batches, of `step` seconds each."""
    clock = Clock()
    progress = Progress("train", 3, stream=stream, enabled=enabled, clock=clock)
    for epoch in (1, 2, 3):
        for done in (250, 500, 750, 1000):
            clock.now += step
            progress.batch(epoch=epoch, done=done, total=1000, loss=1 / epoch)
        progress.epoch(score=0.1 * epoch, best=0.1 * epoch)
    progress.close()
    return progress


def test_a_terminal_sees_one_line_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    stream = Terminal()
    train(stream)
    text = stream.getvalue()
    assert text.count("\n") == 1
    assert text.endswith("\n")
    shown = text.split("\r")
    assert shown[1].startswith("train: epoch 1/3, 25%, loss 1.0000, 250 pairs/s, about 0:11 left")
    assert "train: epoch 2/3, 50%, loss 0.5000, 250 pairs/s, MRR 0.1000 (best 0.1000), " in text
    assert shown[6].rstrip().endswith("about 0:06 left")
    assert all(len(a) >= len(b.rstrip()) for a, b in zip(shown[2:], shown[1:], strict=False))


def test_a_line_never_wraps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    stream = Terminal()
    train(stream)
    assert max(len(line.rstrip("\n")) for line in stream.getvalue().split("\r")) == 39


def test_a_file_gets_a_line_now_and_then() -> None:
    stream = io.StringIO()
    train(stream, step=4.0)
    lines = stream.getvalue().splitlines()
    assert "\r" not in stream.getvalue()
    # 48 seconds, every third batch, and the end.
    assert [line.split(", loss")[0] for line in lines] == [
        "train: epoch 1/3, 75%",
        "train: epoch 2/3, 50%",
        "train: epoch 3/3, 25%",
        "train: epoch 3/3, 100%",
        "train: epoch 3/3, 100%",
    ]
    assert lines[-1].endswith("MRR 0.3000 (best 0.3000), took 0:48")


def test_short_training_shows_one_line() -> None:
    stream = io.StringIO()
    train(stream, step=0.01)
    assert stream.getvalue().count("\n") == 1


def test_silence() -> None:
    stream = Terminal()
    train(stream, enabled=False)
    assert stream.getvalue() == ""


def test_fit_shows_progress_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    run(progress=True)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("train: epoch 4/4, 100%, loss ")
    assert "MRR" in printed.err
    run()
    assert capsys.readouterr().err == ""


def record(stage: str, epoch: int) -> dict[str, object]:
    return {"stage": stage, "epoch": epoch, "loss": 0.5}


def names(path: Path) -> list[str]:
    return [f"{r['stage']}{r['epoch']}" for r in map(json.loads, path.open())]


def test_every_epoch_is_a_line(tmp_path: Path) -> None:
    _, history = run(folder=tmp_path)
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == history.records
    assert list(history.records[0]) == [
        "stage",
        "epoch",
        "loss",
        "learning_rate",
        "mrr_x_to_y",
        "mrr_y_to_x",
        "candidates_x_to_y",
        "candidates_y_to_x",
        "mean_correlation",
        "seconds",
        "pairs_per_second",
    ]
    assert all(value is not None for value in history.records[0].values())


def test_lines_ahead_of_the_checkpoint_are_cut(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    first = MetricsFile(path, "a", [])
    for epoch in (1, 2, 3):
        first.add(record("a", epoch))
    with path.open("a") as file:
        file.write('{"stage": "a", "epo')
    MetricsFile(path, "a", [record("a", 1), record("a", 2)]).add(record("a", 3))
    assert names(path) == ["a1", "a2", "a3"]
    second = MetricsFile(path, "b", [])
    second.add(record("b", 1))
    assert names(path) == ["a1", "a2", "a3", "b1"]
    MetricsFile(path, "a", [record("a", 1)])
    assert names(path) == ["a1", "b1"]
    MetricsFile(path, "b", [record("b", 1), record("b", 2)])
    assert names(path) == ["a1", "b1", "b2"]


def test_foreign_lines_are_dropped_from_metrics(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'[1]\n\xff\xfe\n{"epoch": 2}\n3\n\n')
    MetricsFile(path, "a", []).add(record("a", 1))
    assert names(path) == ["a1"]


def test_tensorboard_reads_what_is_written(tmp_path: Path) -> None:
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    _, history = run(folder=tmp_path, tensorboard=True)
    run(folder=tmp_path, tensorboard=True, resume=True)
    events = reader.EventAccumulator(str(tmp_path / "tensorboard" / "train"))
    events.Reload()
    losses = events.Scalars("loss")
    assert [e.step for e in losses] == [1, 2, 3, 4]
    assert [e.value for e in losses] == pytest.approx([r["loss"] for r in history.records])
    assert "mrr_x_to_y" in events.Tags()["scalars"]
    assert "epoch" not in events.Tags()["scalars"]


def test_missing_tensorboard_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(CcalError, match=r"pip install tensorboard"):
        run(folder=tmp_path, tensorboard=True)
