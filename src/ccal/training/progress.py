"""Progress of a run: a line to watch, and a record of each epoch as JSON and for TensorBoard."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TextIO

from ccal.files import write_atomically
from ccal.optional import require
from ccal.progress import StatusLine, Steps, clock_time

STEP_OF_STAGE = {
    "linear": "fine-tuning linear towers",
    "residual": "training towers with a hidden layer",
    "train": "training",
    "all": "final training",
}
"""The name of a stage of training, for people."""


class Progress:
    """Stage, epoch, loss, rate, validation score and the time left, on one line.

    `stream`, `every` and `clock` are those of `StatusLine`; enabled=False writes nothing. With
    `steps` the stage is the present step of longer work, which has the line. `expected` is the
    likely last epoch, if validation may end the stage before `max_epochs`.

    >>> import sys
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
        steps: Steps | None = None,
        expected: int | None = None,
    ) -> None:
        self._work, self._expected = steps, expected or max_epochs
        self._epochs = f"{max_epochs}" if expected is None else f"at most {max_epochs}"
        self.stage, self.max_epochs, self.enabled, self._clock = stage, max_epochs, enabled, clock
        self._line = StatusLine(stream, every=every, clock=clock)
        self._begun = clock()
        self._first: int | None = None
        self._steps = self._scores = ""

    def batch(self, *, epoch: int, done: int, total: int, loss: float) -> None:
        """After a batch: `done` of `total` pairs of the epoch, and its mean loss so far."""
        if self._first is None:
            # A resumed run does not count the epochs of an earlier process.
            self._first = epoch
        if self._work is not None:
            share = (epoch - self._first + done / total) / max(self._expected - self._first + 1, 1)
            self._work.update(min(share, 1.0), f"epoch {epoch} of {self._epochs}{self._scores}")
            return
        seconds = max(self._clock() - self._begun, 1e-9)
        rate = (total * (epoch - self._first) + done) / seconds
        left = (total * (max(self._expected, epoch) - epoch + 1) - done) / rate
        self._steps = (
            f"{self.stage}: epoch {epoch}/{self.max_epochs}, {100 * done // total}%, "
            f"loss {loss:.4f}, {rate:,.0f} pairs/s"
        )
        if self.enabled and self._line.due():
            self._line.show(f"{self._steps}{self._scores}, about {clock_time(left)} left")

    def epoch(
        self,
        *,
        score: float | None,
        best: float | None,
        name: str = "MRR",
        expected: int | None = None,
        candidates: tuple[int, int] | None = None,
    ) -> None:
        """After validation: the deciding score of this epoch, the best so far, the likely end.

        `candidates` are how many y an x looks at, and how many x a y.
        """
        self._expected = expected or self._expected
        if score is None or best is None:
            return
        if self._work is not None:
            self._scores = f", validation {name} {100 * score:.1f} (best {100 * best:.1f})"
        else:
            self._scores = f", {name} {score:.4f} (best {best:.4f})"
        if candidates is not None:
            counts = dict.fromkeys(f"{count:,}" for count in candidates)
            self._scores += f" of {' and '.join(counts)} candidates"

    def close(self) -> None:
        """Write the line a last time, and end it."""
        if self.enabled and self._steps:
            took = clock_time(self._clock() - self._begun)
            self._line.show(f"{self._steps}{self._scores}, took {took}")
            self._line.end()


Record = dict[str, Any]
"""One epoch: stage, epoch, loss, learning_rate, mrr_x_to_y and mrr_y_to_x on the validation pairs,
candidates_x_to_y and candidates_y_to_x there (how many y an x looks at, and how many x a y),
mean_correlation of CCA on the training pairs, seconds (validation included) and pairs_per_second
(training alone); None if not measured or not finite. `score` is there if it chose the best epoch in
place of the MRR. Both are shares from 0 to 1."""


def numbers(record: Record) -> dict[str, float]:
    """What an epoch measured, for curves.

    >>> numbers({"stage": "train", "epoch": 1, "loss": 0.5, "mrr_x_to_y": None})
    {'loss': 0.5}
    """
    return {name: value for name, value in record.items() if isinstance(value, float)}


@dataclass(frozen=True)
class History:
    """The course of a training run.

    Attributes:
        records: one an epoch.
        best_epoch: the epoch whose weights were kept; 0 for the weights before training.
        best_mrr: its validation score; None without validation.
        epochs: number of epochs that were trained.
    """

    records: list[Record]
    best_epoch: int
    best_mrr: float | None
    epochs: int


class Callback(Protocol):
    """Told of the course of a training, as `MetricsFile` and `TensorBoard` are; on rank 0 only."""

    def add(self, record: Record, /) -> None:
        """After an epoch; `record["stage"]` and `record["epoch"]` say which."""

    def close(self) -> None:
        """At the end of a stage; a training has several."""


class MetricsFile:
    """Records as lines of JSON, those of several stages in one file.

    Args:
        path: the file.
        stage: the stage that will add lines.
        records: of this stage up to now. Later lines of this stage are cut, as is half a line that
            a killed process left; lines of other stages stay.
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
        epoch: the last epoch of the checkpoint; later events, of a killed run, are hidden.
    """

    def __init__(self, folder: Path, epoch: int = 0) -> None:
        require("tensorboard", package="tensorboard", purpose="Logging for TensorBoard")
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder), purge_step=epoch + 1)

    def add(self, record: Record) -> None:
        """Write the numbers of one epoch."""
        for name, value in numbers(record).items():
            self._writer.add_scalar(name, value, record["epoch"])

    def close(self) -> None:
        """Write what is still in memory."""
        self._writer.close()
