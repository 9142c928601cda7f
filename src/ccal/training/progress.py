"""One line that tells how training goes."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from typing import TextIO

__all__ = ["Progress", "clock_time", "counting"]


class Progress:
    """Stage, epoch, loss, rate, validation MRR and the longest time left, on one line.

    A terminal sees the line rewritten a few times a second; a file or pipe gets one every
    `every` seconds and at the end.

    Args:
        stage: what is being done, the start of the line.
        max_epochs: where it ends at the latest.
        stream: where to write; standard error if not given.
        every: seconds between lines, None for 0.2 on a terminal and 10 elsewhere.
        enabled: False writes nothing.
        clock: seconds, for tests.

    >>> progress = Progress("train", 5, stream=sys.stdout, every=0)
    >>> progress.batch(epoch=1, done=50, total=100, loss=0.51234)  # doctest: +ELLIPSIS
    train: epoch 1/5, 50%, loss 0.5123, ...
    """

    def __init__(
        self,
        stage: str,
        max_epochs: int,
        *,
        stream: TextIO | None = None,
        every: float | None = None,
        enabled: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.stage, self.max_epochs, self.enabled, self._clock = stage, max_epochs, enabled, clock
        self._stream = sys.stderr if stream is None else stream
        self._terminal = self._stream.isatty()
        self._every = (0.2 if self._terminal else 10.0) if every is None else every
        self._begun = self._shown = clock()
        self._first: int | None = None
        self._start = self._scores = ""
        self._width = 0

    def batch(self, *, epoch: int, done: int, total: int, loss: float) -> None:
        """After a batch: `done` of `total` pairs of the epoch, and its mean loss so far."""
        now = self._clock()
        if self._first is None:
            # A resumed run does not count what an earlier process did.
            self._first = epoch
        rate = (total * (epoch - self._first) + done) / max(now - self._begun, 1e-9)
        left = (total * (self.max_epochs - epoch + 1) - done) / rate
        self._start = (
            f"{self.stage}: epoch {epoch}/{self.max_epochs}, {100 * done // total}%, "
            f"loss {loss:.4f}, {rate:,.0f} pairs/s"
        )
        if now - self._shown >= self._every:
            self._show(now, f"at most {clock_time(left)} left")

    def epoch(self, *, mrr: float | None, best: float | None, name: str = "MRR") -> None:
        """After validation: the MRR, or the score of another name, that counts, now and at best."""
        if mrr is not None and best is not None:
            self._scores = f", {name} {mrr:.4f} (best {best:.4f})"

    def close(self) -> None:
        """Write the line a last time, and end it."""
        if self._start:
            now = self._clock()
            self._show(now, f"took {clock_time(now - self._begun)}")
            if self._terminal and self.enabled:
                self._stream.write("\n")
                self._stream.flush()

    def _show(self, now: float, end: str) -> None:
        if not self.enabled:
            return
        self._shown = now
        line = f"{self._start}{self._scores}, {end}"
        if self._terminal:
            # A line that wraps could not be rewritten. Blanks cover what a longer one left behind.
            line = line[: shutil.get_terminal_size().columns - 1]
            self._stream.write("\r" + line.ljust(self._width))
            self._width = len(line)
        else:
            self._stream.write(line + "\n")
        self._stream.flush()


def clock_time(seconds: float) -> str:
    """Minutes and seconds, with hours if need be, rounded up.

    >>> clock_time(200), clock_time(3661.2), clock_time(0)
    ('3:20', '1:01:02', '0:00')
    """
    whole = int(-(-seconds // 1))
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def counting(title: str, stream: TextIO | None = None) -> Callable[[int, int], None]:
    """A callback for work on many items: their number, rate and time left, if it takes long.

    The first two seconds are silent; then a terminal sees the line rewritten, a file or pipe gets
    one every ten seconds.

    >>> counting("image: features")(10, 100)
    """
    out = sys.stderr if stream is None else stream
    begun = time.monotonic()
    shown = begun + 2 - (0.2 if out.isatty() else 10.0)

    def show(done: int, total: int) -> None:
        nonlocal shown
        now = time.monotonic()
        over = done >= total and shown > begun + 2
        if not over and now - shown < (0.2 if out.isatty() else 10.0):
            return
        shown = now
        rate = done / max(now - begun, 1e-9)
        left = clock_time((total - done) / rate)
        line = f"{title}: {done:,} of {total:,}, {rate:,.0f}/s, {left} left"
        out.write(f"\r\x1b[K{line}" + "\n" * over if out.isatty() else f"{line}\n")
        out.flush()

    return show
