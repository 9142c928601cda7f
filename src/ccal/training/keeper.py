"""What a run keeps: its best and latest state and its records, in memory and in a folder."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from ccal import distributed
from ccal.errors import InputError
from ccal.training.checkpoint import Facts, facts_of, read_checkpoint, write_checkpoint
from ccal.training.metrics import MetricsFile, Record, TensorBoard
from ccal.training.parallel import from_rank_0
from ccal.training.schedule import Schedule
from ccal.training.state import Snapshot, State

__all__ = ["Keeper"]


class Keeper:
    """Best and latest snapshot, records, and their files, which rank 0 alone writes.

    Snapshots are taken at the end of epochs, and a checkpoint holds nothing later. So whatever
    happens within an epoch, the epoch is repeated from its start.

    Args:
        state: what snapshots are taken of.
        schedule: kept with them.
        folder: for the files; None keeps everything in memory.
        stage: part of the checkpoint's name and of the records.
        facts: what must be the same to resume, beside the shapes of the weights.
        every: seconds between checkpoints, at least.
    """

    best: Snapshot
    """Of the best epoch, or of the start as long as there is none."""

    latest: Snapshot

    def __init__(
        self,
        state: State,
        schedule: Schedule,
        *,
        folder: Path | None,
        stage: str,
        facts: Facts,
        every: float,
    ) -> None:
        self.state, self.schedule, self.stage, self.every = state, schedule, stage, every
        self.folder = folder
        self.facts = facts_of(state.model, state.objective, **facts)
        self.path = None if folder is None else folder / f"checkpoint-{stage}.pt"
        self.records: list[Record] = []
        self._logs: list[MetricsFile | TensorBoard] = []
        self._written = time.monotonic()
        self._writes = folder is not None and distributed.rank() == 0

    def open(self, *, resume: bool, tensorboard: bool) -> None:
        """Begin, or take up the state of the checkpoint."""
        content = from_rank_0(lambda: self._read(resume))
        if content is None:
            self.best = self.latest = self.state.snapshot()
        else:
            self.best, self.latest = content["best"], content["latest"]
            self.schedule.load_state_dict(content["schedule"])
            self.records = content["records"]
            self.state.restore(self.latest)
        if self.folder is not None and self._writes:
            if tensorboard:
                events = self.folder / "tensorboard" / self.stage
                self._logs.append(TensorBoard(events, self.schedule.epoch))
            self._logs.append(MetricsFile(self.folder / "metrics.jsonl", self.stage, self.records))

    def add(self, record: Record, *, best: bool) -> None:
        """At the end of an epoch: take note of its record and of the state."""
        self.records.append(record)
        if best or self.folder is not None:
            self.latest = self.state.snapshot()
        if best:
            self.best = self.latest
        # First, since lines ahead of the checkpoint are cut when resuming.
        for log in self._logs:
            log.add(record)
        if time.monotonic() - self._written >= self.every:
            self.save()

    def back_to_best(self) -> None:
        """Bring the best state back, optimiser included."""
        self.state.restore(self.best)

    def save(self) -> None:
        """Write the checkpoint of the last whole epoch, if there is a folder."""
        if self.path is not None and self._writes:
            content = {
                "best": self.best,
                "latest": self.latest,
                "schedule": self.schedule.state_dict(),
                "records": self.records,
            }
            write_checkpoint(self.path, self.facts, content)
            self._written = time.monotonic()

    def close(self) -> None:
        """Finish the logs."""
        for log in self._logs:
            log.close()

    def _read(self, resume: bool) -> dict[str, Any] | None:
        if self.folder is None or self.path is None:
            return None
        self.folder.mkdir(parents=True, exist_ok=True)
        # Left by a process that was killed while it wrote.
        for name in (self.path.name, "metrics.jsonl"):
            for stale in self.folder.glob(f".{name}.*"):
                stale.unlink()
        if not self.path.exists():
            return None
        if not resume:
            raise InputError(
                f"{str(self.path)!r} holds the state of an earlier run; resume it with resume=True "
                "or choose another folder."
            )
        return read_checkpoint(self.path, self.facts)
