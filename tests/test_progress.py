from __future__ import annotations

import io

import pytest

from ccal.progress import StatusLine, counting
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
