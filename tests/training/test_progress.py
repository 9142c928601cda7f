from __future__ import annotations

import io

import pytest

from ccal.training.progress import Progress
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
    assert shown[1].startswith("train: epoch 1/3, 25%, loss 1.0000, 250 pairs/s, at most 0:11 left")
    assert "train: epoch 2/3, 50%, loss 0.5000, 250 pairs/s, MRR 0.1000 (best 0.1000), " in text
    assert shown[6].rstrip().endswith("at most 0:06 left")
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


def test_short_work_is_told_once() -> None:
    stream = io.StringIO()
    train(stream, step=0.01)
    assert stream.getvalue().count("\n") == 1


def test_silence() -> None:
    stream = Terminal()
    train(stream, enabled=False)
    assert stream.getvalue() == ""


def test_fit_tells_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    run(progress=True)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("train: epoch 4/4, 100%, loss ")
    assert "MRR" in printed.err
    run()
    assert capsys.readouterr().err == ""
