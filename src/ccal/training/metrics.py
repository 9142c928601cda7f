"""What happened in each epoch: as a result, as lines of JSON, and for TensorBoard."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ccal.files import write_atomically
from ccal.optional import require

__all__ = ["History", "MetricsFile", "Record", "TensorBoard"]

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
