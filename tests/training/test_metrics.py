from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from ccal.errors import CcalError
from ccal.training.progress import MetricsFile
from tests.training.stand_ins import run


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


def test_whatever_else_is_in_the_file_does_no_harm(tmp_path: Path) -> None:
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


def test_tensorboard_is_asked_for_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(CcalError, match=r"pip install 'ccal\[tensorboard\]'"):
        run(folder=tmp_path, tensorboard=True)
