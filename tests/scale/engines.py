"""Engines whose workers or commands end in the middle."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ccal.scale.engines import Engine, LocalEngine
from ccal.scale.formats import Batch
from ccal.scale.shards import Dataset, Shard


class Here(Engine[str]):
    """One worker in this process, which takes no second to start."""

    workers = 1

    def _hire(self, start: Any) -> str:
        self._work = start()
        return "worker"

    def _give(self, worker: str, task: Any) -> None:
        from ccal.scale.engines import _messages

        self._says = _messages(self._work, task)

    def _hear(self, workers: Any) -> Any:
        return "worker", next(self._says)

    def _dismiss(self, worker: str) -> None:
        pass


class Stopping(Here):
    """Stops as Ctrl-C does when the third shard is begun."""

    begun = 0

    def _give(self, worker: str, task: Any) -> None:
        self.begun += 1
        if self.begun == 3:
            raise KeyboardInterrupt
        super()._give(worker, task)


class Dying(LocalEngine):
    """Kills its first worker with -9 when it has begun."""

    def _give(self, worker: Any, task: Any) -> None:
        super()._give(worker, task)
        if not hasattr(self, "killed"):
            self.killed = worker.process.pid
            os.kill(self.killed, signal.SIGKILL)


@dataclass(frozen=True)
class FatalShard:
    """Kills the first worker that reads it, after a batch; `mark` is a file that says so."""

    inner: Any
    mark: Path

    @property
    def name(self) -> str:
        return str(self.inner.name)

    @property
    def rows(self) -> int:
        return int(self.inner.rows)

    def columns(self) -> list[str]:
        return list(self.inner.columns())

    def batches(self, columns: Sequence[str], size: int) -> Iterator[Batch]:
        for batch in self.inner.batches(columns, min(size, 100)):
            yield batch
            if size > 1 and not self.mark.exists():
                self.mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)


def fatal(dataset: Dataset, folder: Path) -> Dataset:
    """The same dataset, of which the longest shard kills a worker once."""
    longest = max(dataset.shards, key=lambda shard: shard.rows)
    shards: list[Shard] = [
        FatalShard(shard, folder / "killed") if shard is longest else shard
        for shard in dataset.shards
    ]
    return Dataset(dataset.location, shards)
