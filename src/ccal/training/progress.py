"""Progress of a run: a line to watch, and a record of each epoch as JSON and for TensorBoard."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from ccal.files import write_atomically
from ccal.optional import require

__all__ = ["History", "MetricsFile", "Progress", "Record", "TensorBoard", "clock_time", "counting"]


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

    def epoch(self, *, score: float | None, best: float | None, name: str = "MRR") -> None:
        """After validation: the deciding score of this epoch, and the best so far."""
        if score is not None and best is not None:
            self._scores = f", {name} {score:.4f} (best {best:.4f})"

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


Record = dict[str, Any]
"""Of an epoch: stage, epoch, loss, learning_rate, mrr_x_to_y and mrr_y_to_x on the validation
pairs, mean_correlation of CCA on the training pairs, seconds (validation included) and
pairs_per_second (training alone). None is what was not measured, or not finite. `score` is there
if the best epoch was chosen by something else than MRR."""


@dataclass(frozen=True)
class History:
    """How training went.

    `records` has one entry an epoch; `best_epoch` is the one whose weights were kept, 0 for those
    given; `best_mrr` its validation score, None without validation; `epochs` all that were trained.
    """

    records: list[Record]
    best_epoch: int
    best_mrr: float | None
    epochs: int


class MetricsFile:
    """Records as lines of JSON, those of several stages in one file.

    Args:
        path: the file.
        stage: the one that will add lines.
        records: what this stage has recorded up to now. Its later lines are cut, half a line left
            by a process that was killed is dropped, and lines of other stages stay.
    """

    def __init__(self, path: Path, stage: str, records: list[Record]) -> None:
        self.path = path
        before: list[str] = []
        after: list[str] = []
        seen = False
        for line in path.read_text(errors="replace").splitlines() if path.exists() else ():
            whole = _stage(line)
            if whole == stage:
                seen = True
            elif whole is not None:
                (after if seen else before).append(line)
        lines = [*before, *map(json.dumps, records), *after]
        write_atomically(path, "".join(line + "\n" for line in lines).encode())

    def add(self, record: Record) -> None:
        """Append one line."""
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")

    def close(self) -> None:
        """Nothing is left to write."""


def _stage(line: str) -> str | None:
    """The stage of a line, None if it is not a whole record."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    stage = record.get("stage") if isinstance(record, dict) else None
    return stage if isinstance(stage, str) else None


class TensorBoard:
    """The numbers of each epoch as TensorBoard's scalars.

    Args:
        folder: of this stage's events.
        epoch: the last one that counts; later events of a run that was killed are hidden.
    """

    def __init__(self, folder: Path, epoch: int) -> None:
        require("tensorboard", extra="tensorboard", purpose="Logging for TensorBoard")
        module = require("torch.utils.tensorboard", extra="tensorboard", purpose="Logging")
        self._writer = module.SummaryWriter(str(folder), purge_step=epoch + 1)

    def add(self, record: Record) -> None:
        """Write the numbers of one epoch."""
        for name, value in record.items():
            if isinstance(value, int | float) and name != "epoch":
                self._writer.add_scalar(name, value, record["epoch"])

    def close(self) -> None:
        """Write what is still in memory."""
        self._writer.close()
