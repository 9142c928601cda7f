"""Checkpoints: what a run remembers, in memory and on disk, and how it is interrupted and resumed.

`State` holds all that a training step changes. `Checkpointer` copies it at the end of each epoch
and writes it to one file, which appears whole or not at all. A run that is killed within an epoch
repeats that epoch from its start, and so ends with the weights of an unbroken run. `catch_signals`
turns Ctrl-C and SIGTERM into a request that the loop meets between two batches.
"""

import copy
import io
import signal
import threading
import time
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from ccal import distributed
from ccal.errors import InputError
from ccal.files import write_atomically
from ccal.model import DualEncoder
from ccal.training.parallel import from_rank_0
from ccal.training.progress import Callback, MetricsFile, Record, TensorBoard
from ccal.training.schedule import Schedule
from ccal.training.settings import Settings

_FORMAT = 1

Snapshot = dict[str, Any]
"""Copies of tensors and plain data, safe to keep and to write."""


class State:
    """Weights of model and objective, the running mean of the model's weights, and the optimiser.

    Attributes:
        kept: the model that is validated and kept: the running mean with `settings.averaging`, else
            the model that is trained.
        parameters: the trained parameters of model and objective.
    """

    def __init__(self, model: DualEncoder, objective: nn.Module, settings: Settings) -> None:
        self.model, self.objective = model, objective
        self.averaging, self.steps = settings.averaging, 0
        self.kept = model
        if self.averaging:
            self.kept = copy.deepcopy(model).requires_grad_(False)
        # An objective may hold the model, or share parameters with it.
        both = nn.ModuleList((model, objective))
        self.parameters = [p for p in both.parameters() if p.requires_grad]
        if not self.parameters:
            raise InputError("There is nothing to train: no parameter has requires_grad.")
        self.optimiser = _optimiser(self.parameters, model, settings)

    def step(self) -> None:
        """Move the weights along their gradients, and the running mean towards the weights."""
        self.optimiser.step()
        self.steps += 1
        if self.averaging:
            decay = min(self.averaging, (1 + self.steps) / (10 + self.steps))
            with torch.no_grad():
                for mean, new in zip(self.kept.parameters(), self.model.parameters(), strict=True):
                    mean.lerp_(new, 1 - decay)

    def copy_buffers(self) -> None:
        """Give the running mean the model's buffers, such as the statistics of batch norm."""
        if self.averaging:
            for mine, new in zip(self.kept.buffers(), self.model.buffers(), strict=True):
                mine.copy_(new)

    def set_learning_rate(self, rate: float) -> None:
        """From the next step on."""
        for group in self.optimiser.param_groups:
            group["lr"] = rate

    def snapshot(self) -> Snapshot:
        """A copy of everything, on the same device."""
        return {
            "model": _copies(self.model),
            "kept": _copies(self.kept) if self.averaging else None,
            "objective": _copies(self.objective),
            "optimiser": copy.deepcopy(self.optimiser.state_dict()),
            "steps": self.steps,
        }

    def restore(self, snapshot: Snapshot) -> None:
        """Bring everything back as it was."""
        self.model.load_state_dict(snapshot["model"])
        if self.averaging:
            self.kept.load_state_dict(snapshot["kept"])
        self.objective.load_state_dict(snapshot["objective"])
        # The optimiser keeps the very tensors that it is given, and changes them.
        self.optimiser.load_state_dict(copy.deepcopy(snapshot["optimiser"]))
        self.steps = snapshot["steps"]


def _copies(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}


def _optimiser(
    parameters: list[nn.Parameter], model: nn.Module, settings: Settings
) -> torch.optim.Optimizer:
    """Adam with an L2 penalty, or AdamW.

    The temperature of a loss never decays: it must not drift to 1.
    """
    of_model = {id(p) for p in model.parameters()}

    def decays(p: nn.Parameter) -> bool:
        return p.ndim >= 2 or (settings.decay == "all" and id(p) in of_model)

    groups: list[dict[str, Any]] = [
        {"params": [p for p in parameters if decays(p)], "weight_decay": settings.weight_decay},
        {"params": [p for p in parameters if not decays(p)], "weight_decay": 0.0},
    ]
    kind = torch.optim.Adam if settings.optimiser == "adam" else torch.optim.AdamW
    return kind([group for group in groups if group["params"]], lr=settings.learning_rate)


class Checkpointer:
    """Best and latest snapshot and the records of all epochs, and their files.

    Snapshots are taken at the end of epochs, and a checkpoint holds nothing later. Only rank 0
    writes.

    Args:
        state: source and target of the snapshots.
        schedule: saved and restored with them.
        folder: of the files; None keeps everything in memory.
        stage: part of the checkpoint's name and of the records.
        facts: names and plain values that must be the same to resume; so must all shapes.
        every: least number of seconds between two checkpoints.
    """

    best: Snapshot
    """Of the best epoch; of the start while there is none."""

    latest: Snapshot

    def __init__(
        self,
        state: State,
        schedule: Schedule,
        *,
        folder: Path | None,
        stage: str,
        facts: dict[str, Any],
        every: float,
    ) -> None:
        self.state, self.schedule, self.stage, self.every = state, schedule, stage, every
        shapes = {
            f"shape of {name}": list(tensor.shape)
            for module in (state.model, state.objective)
            for name, tensor in module.state_dict().items()
        }
        self.facts = {**facts, **shapes}
        self.path: Path | None = None
        if folder is not None and distributed.rank() == 0:
            self.path = folder / f"checkpoint-{stage}.pt"
        self.records: list[Record] = []
        self._logs: list[Callback] = []
        self._written = time.monotonic()

    def open(self, *, resume: bool, tensorboard: bool, callbacks: Iterable[Callback] = ()) -> None:
        """Start, or restore the state of the checkpoint."""
        if distributed.rank() == 0:
            self._logs += callbacks
        content = from_rank_0(lambda: self._read(resume))
        if content is None:
            self.best = self.latest = self.state.snapshot()
        else:
            self.best, self.latest = content["best"], content["latest"]
            self.schedule.load_state_dict(content["schedule"])
            self.records = content["records"]
            self.state.restore(self.latest)
        if self.path is not None:
            if tensorboard:
                events = self.path.parent / "tensorboard" / self.stage
                self._logs.append(TensorBoard(events, self.schedule.epoch))
            metrics = self.path.with_name("metrics.jsonl")
            self._logs.append(MetricsFile(metrics, self.stage, self.records))

    def add(self, record: Record, *, best: bool) -> None:
        """At the end of an epoch: copy the state, log the record, and write if it is time."""
        self.records.append(record)
        if best or self.path is not None:
            self.latest = self.state.snapshot()
        if best:
            self.best = self.latest
        # Logs come first: resuming cuts their lines that are ahead of the checkpoint.
        for log in self._logs:
            log.add(record)
        if time.monotonic() - self._written >= self.every:
            self.save()

    def save(self) -> None:
        """Write the checkpoint of the last whole epoch, if there is a folder."""
        if self.path is not None:
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
        if self.path is None:
            return None
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # A process that was killed while it wrote has left these.
        for name in (self.path.name, "metrics.jsonl"):
            for stale in self.path.parent.glob(f".{name}.*"):
                stale.unlink()
        if not self.path.exists():
            return None
        if not resume:
            raise InputError(
                f"{str(self.path)!r} holds the state of an earlier run; resume it with resume=True "
                "or choose another folder."
            )
        return read_checkpoint(self.path, self.facts)


def write_checkpoint(path: Path, facts: dict[str, Any], content: dict[str, Any]) -> None:
    """Write tensors and plain data in one step."""
    buffer = io.BytesIO()
    torch.save({"format": _FORMAT, "facts": facts, **content}, buffer)
    write_atomically(path, buffer.getvalue())


def read_checkpoint(path: Path, facts: dict[str, Any]) -> dict[str, Any]:
    """What `write_checkpoint` wrote, on the CPU; refused if damaged or of another run."""
    try:
        with zipfile.ZipFile(path) as archive:
            # torch does not look at the checksums that it writes.
            damaged = archive.testzip()
        if damaged is not None:
            raise zipfile.BadZipFile(f"{damaged} does not match its checksum")
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        number, theirs = content["format"], content["facts"]
    except MemoryError:
        raise
    except Exception as error:  # of many kinds: from zipfile, pickle and torch
        raise InputError(
            f"The checkpoint {str(path)!r} is damaged ({error}); nothing was loaded. Remove it "
            "to start anew, or put a copy in its place."
        ) from error
    if number != _FORMAT:
        raise InputError(
            f"The checkpoint {str(path)!r} has format {number}, and this version reads {_FORMAT}; "
            "remove it to start anew, or resume with the version that wrote it."
        )
    for name in dict.fromkeys((*theirs, *facts)):
        old, new = (
            "not set" if source.get(name) is None else repr(source[name])
            for source in (theirs, facts)
        )
        if old != new:
            raise InputError(
                f"The checkpoint {str(path)!r} belongs to another run: its {name} is {old}, and "
                f"now it is {new}. Resume with the same settings and data, or choose another "
                "folder."
            )
    return content


class Interrupted(KeyboardInterrupt):
    """Training was stopped by a signal; the message says how to go on.

    `signal` is its number, such as signal.SIGINT.
    """

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.signal = number


class Signals:
    """`requested` is the number of the signal that came, None before."""

    requested: int | None = None


@contextmanager
def catch_signals() -> Iterator[Signals]:
    """Within, a first SIGINT or SIGTERM is only noted; a second raises `Interrupted` at once.

    Python delivers signals to the main thread; in other threads nothing changes. Signals that the
    process ignores, as under nohup, stay ignored.

    >>> with catch_signals() as signals:
    ...     signal.raise_signal(signal.SIGINT)
    ...     signals.requested == signal.SIGINT
    True
    """
    signals = Signals()
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return

    def note(number: int, frame: FrameType | None) -> None:
        if signals.requested is not None:
            raise Interrupted("Stopped at once by a second signal.", number)
        signals.requested = number

    before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    ours = [n for n, handler in before.items() if handler is not signal.SIG_IGN]
    for number in ours:
        signal.signal(number, note)
    try:
        yield signals
    finally:
        for number in ours:
            # None stands for a handler that Python did not install.
            signal.signal(number, before[number] or signal.SIG_DFL)
