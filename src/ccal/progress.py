"""Progress of long work: one line on a terminal, plain lines now and then in a log."""

import shutil
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import TextIO

_BAR = 24
"""Width of a bar."""


class StatusLine:
    """A line that a terminal sees rewritten, and a file or pipe gets again and again.

    Args:
        stream: where to write; standard error if not given.
        every: seconds between two lines; None for 0.2 on a terminal and 10 elsewhere.
        delay: seconds before the first line; None for `every`.
        clock: seconds, for tests.

    >>> line = StatusLine(sys.stdout, every=0)
    >>> if line.due():
    ...     line.show("half done")
    half done
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        every: float | None = None,
        delay: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # Programs without a console have no standard error.
        self._stream: TextIO | None = sys.stderr if stream is None else stream
        self._terminal = self._stream is not None and self._stream.isatty()
        self._every = (0.2 if self._terminal else 10.0) if every is None else every
        self._clock = clock
        self._next = clock() + (self._every if delay is None else delay)
        self._width = 0
        self.shown = False

    def due(self) -> bool:
        """Whether it is time for a line."""
        return self._clock() >= self._next

    def show(self, text: str, share: float | None = None) -> None:
        """Write the line; a terminal also sees a bar of which `share` is filled, if it has room."""
        self._next, self.shown = self._clock() + self._every, True
        if self._terminal:
            # A line that wraps could not be rewritten. Blanks cover the end of a longer one.
            columns = shutil.get_terminal_size().columns - 1
            room = share is not None and len(text) + _BAR + 2 <= columns
            text = text[:columns]
            bar = _bar(share, self._stream) if room else ""
            width = len(text) + (_BAR + 2 if bar else 0)
            self._write("\r" + bar + text + " " * (self._width - width))
            self._width = width
        else:
            self._write(text + "\n")

    def end(self) -> None:
        """Leave the line as it is; the terminal goes on below."""
        if self._terminal and self.shown:
            self._write("\n")
        self._width = 0

    def _write(self, text: str) -> None:
        if self._stream is not None:
            self._stream.write(text)
            self._stream.flush()


def _bar(share: float | None, stream: TextIO | None) -> str:
    """A bar and two blanks; empty without rich, or on a terminal without colours."""
    if share is None or find_spec("rich") is None:
        return ""
    from rich.console import Console
    from rich.progress_bar import ProgressBar

    console = Console(file=stream)
    # Without colours the empty part of a bar looks like the full one.
    if console.no_color or console.color_system is None:
        return ""
    with console.capture() as drawn:
        console.print(ProgressBar(total=1.0, completed=share, width=_BAR), end="")
    return drawn.get() + "  "


def clock_time(seconds: float) -> str:
    """Minutes and seconds, with hours if need be, rounded up.

    >>> clock_time(200), clock_time(3661.2), clock_time(0)
    ('3:20', '1:01:02', '0:00')
    """
    whole = int(-(-seconds // 1))
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def counting(
    title: str, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
) -> Callable[[int, int], None]:
    """A function of (done, total) that shows their numbers, the rate and the time left.

    The first two seconds are silent, so short work shows nothing.

    >>> counting("image: features")(10, 100)
    """
    line, begun = StatusLine(stream, delay=2.0, clock=clock), clock()

    def show(done: int, total: int) -> None:
        over = done >= total and line.shown
        if over or line.due():
            rate = max(done, 1e-9) / max(clock() - begun, 1e-9)
            left = clock_time((total - done) / rate)
            text = f"{title}: {done:,} of {total:,}, {rate:,.0f}/s, {left} left"
            line.show(text, share=done / max(total, 1))
        if over:
            line.end()

    return show
