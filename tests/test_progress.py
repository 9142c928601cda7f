from __future__ import annotations

import io

import pytest

from ccal.progress import StatusLine, Steps, counting
from tests.training.test_progress import Clock, Terminal


def test_short_work_is_silent() -> None:
    stream, clock = io.StringIO(), Clock()
    show = counting("items", stream, clock)
    for done in range(1, 11):
        clock.now += 0.19
        show(done, 10)
    assert stream.getvalue() == ""


def test_a_log_gets_plain_lines_and_the_end() -> None:
    stream, clock = io.StringIO(), Clock()
    show = counting("items", stream, clock)
    for done in range(1, 31):
        clock.now += 1
        show(done * 1000, 30_000)
    assert stream.getvalue().splitlines() == [
        "items: 2,000 of 30,000, 1,000/s, 0:28 left",
        "items: 12,000 of 30,000, 1,000/s, 0:18 left",
        "items: 22,000 of 30,000, 1,000/s, 0:08 left",
        "items: 30,000 of 30,000, 1,000/s, 0:00 left",
    ]


def test_a_terminal_sees_one_line_rewritten() -> None:
    stream, clock = Terminal(), Clock()
    show = counting("items", stream, clock)
    for done in range(1, 11):
        clock.now += 1
        show(done, 10)
    text = stream.getvalue()
    assert text.count("\r") == 9
    assert text.endswith("10 of 10, 1/s, 0:00 left\n")
    assert text.count("\n") == 1


def test_programs_without_a_console(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", None)
    line = StatusLine(every=0)
    line.show("nobody sees it")
    line.end()


@pytest.mark.parametrize(("columns", "bar"), [("100", True), ("50", False)])
def test_a_terminal_with_room_sees_a_bar(
    columns: str, bar: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("rich")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", columns)
    stream, clock = Terminal(), Clock()
    show = counting("items", stream, clock)
    clock.now = 3
    show(1, 3)
    drawn, _, text = stream.getvalue().partition("items: 1 of 3")
    assert text == ", 0/s, 0:06 left"
    assert drawn.count("\u2501") == (23 if bar else 0)


PLAN = {"features": 10.0, "linear CCA": 5.0, "training": 30.0, "report": 5.0}


def steps(stream: io.StringIO, **more: bool) -> tuple[Steps, Clock]:
    clock = Clock()
    return Steps(PLAN, stream=stream, every=0, clock=clock, **more), clock


def test_steps_are_one_progress() -> None:
    stream = io.StringIO()
    work, clock = steps(stream)
    show = work.counting("features")
    clock.now = 4
    show(100, 400)  # a quarter in four seconds: twelve more, and forty for what follows
    clock.now = 16
    work.begin("training")  # linear CCA was not needed
    work.say("caption: 9 words")
    clock.now = 26
    work.update(0.5, "epoch 5 of at most 10")
    work.expect("report", 1.0)
    work.begin("report")
    assert stream.getvalue().splitlines() == [
        "0%  step 1 of 4, features, about 0:50 left in all",
        "7%  step 1 of 4, features: 100 of 400, about 0:52 left in all",
        "31%  step 3 of 4, training, about 0:35 left in all",
        "caption: 9 words",
        "63%  step 3 of 4, training: epoch 5 of at most 10, about 0:15 left in all",
        "96%  step 4 of 4, report, about 0:01 left in all",
    ]


def test_the_share_of_steps_never_shrinks() -> None:
    stream = io.StringIO()
    work, clock = steps(stream)
    work.begin("training")
    for clock.now, share in ((20, 0.9), (30, 0.1)):
        work.update(share)
    shares = [line.split("%")[0] for line in stream.getvalue().splitlines()]
    assert shares == ["0", "73", "73"]


def test_steps_leave_no_line_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    work, _ = steps(stream)
    work.begin("features")
    work.close()
    shown = stream.getvalue()
    assert "\n" not in shown
    assert shown.split("\r")[-2:] == [
        " " * len("0%  step 1 of 4, features, about 0:50 left in all"),
        "",
    ]


def test_steps_that_are_not_enabled_are_silent() -> None:
    stream = Terminal()
    work, clock = steps(stream, enabled=False)
    work.counting("features")(1, 2)
    clock.now = 50
    work.say("nothing")
    work.close()
    assert stream.getvalue() == ""
