"""The training loop, which is the paper's procedure.

An epoch takes a step on every batch of shuffled training pairs. Then the projections are fitted
exactly to all training pairs, and the validation pairs look for each other. The schedule decides on
their score: go on, return to the best weights with a tenth of the learning rate, or stop. At the
end the model has the best weights.
"""

import math
import re
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from ccal import distributed
from ccal.bounds import Options, Whole, check
from ccal.cca import CCALayer
from ccal.errors import CcalError, InputError
from ccal.model import DualEncoder
from ccal.positives import Positives
from ccal.progress import Steps
from ccal.ranks import mean_reciprocal_ranks
from ccal.training.batch_norm import batch_norm_over_ranks, unbiased_batch_norm
from ccal.training.batches import (
    Features,
    RowNumbers,
    check_pairs,
    epoch_batches,
    epoch_length,
    epoch_rows,
    relation,
    seed_epoch,
    share,
)
from ccal.training.checkpoint import Checkpointer, Interrupted, Signals, State, catch_signals
from ccal.training.hardware import check_precision
from ccal.training.parallel import (
    average_gradients,
    check_ranks,
    copy_from_rank_0,
    from_rank_0,
    wait_for_all,
)
from ccal.training.progress import Callback, History, Progress, Record
from ccal.training.schedule import Schedule
from ccal.training.scoring import any_diverged, blocks, embed_items, towers_diverged
from ccal.training.settings import Settings

Select = Literal["both", "x->y", "y->x"]
Score = Callable[[DualEncoder], float]
Scores = dict[str, float | None]
"""Entries of a record: the MRR of both directions, or the value of `score`."""
Correct = Callable[[DualEncoder, Tensor, Tensor], tuple[Tensor, Tensor]]

_LinAlgError: type[Exception] = torch.linalg.LinAlgError  # type: ignore[attr-defined]


def fit(
    model: DualEncoder,
    objective: nn.Module,
    train: Features,
    valid: Features | None,
    settings: Settings,
    *,
    folder: Path | None = None,
    resume: bool = False,
    stage: str = "train",
    epochs: int | None = None,
    validate_first: bool = False,
    select: Select = "both",
    score: Score | None = None,
    correct: Correct | None = None,
    rival: float | None = None,
    checkpoint_seconds: float = 20.0,
    progress: bool | Steps = True,
    tensorboard: bool = False,
    callbacks: Sequence[Callback] = (),
) -> History:
    """Train a model; afterwards it holds the best weights and projections, in evaluation mode.

    The same seed on the same machine gives the same weights, and so does a run that was killed and
    resumed. Under torch.distributed every rank calls `fit` with the same arguments, and together
    they take the steps of one process. torch's global generator is seeded each epoch.

    Args:
        model: on the device to train on.
        objective: `objective(model, x, y)` is the loss, a scalar; it may have parameters. x and y
            are this rank's rows of a batch; a loss with gather=True compares their embeddings
            with those of all ranks. If `train` has labels and `settings.mask_labels` is true, the
            call is `objective(model, x, y, labels)`.
        train: training pairs.
        valid: validation pairs; None if `epochs` says how long to train.
        settings: optimiser, schedule, batch size, precision, seed.
        folder: for checkpoint-STAGE.pt, metrics.jsonl and tensorboard/; None writes no file.
        resume: go on from the checkpoint in `folder`, or start if there is none.
        stage: name in progress and metrics; stages of different names can share a folder.
        epochs: train for so many epochs, without validation and schedule.
        validate_first: the model as given is epoch 0 and may stay the best.
        select: direction of the validation MRR that chooses the best epoch, or the mean of both.
        score: chooses the best epoch in place of the MRR: `score(model)`, a share from 0 to 1, is
            called after each epoch with the projections of that epoch, and the highest is the best.
        correct: `correct(model, x, y)` are the embeddings of validation items that are compared.
        rival: the best score of another model; while this one is worse, patience is halved.
        checkpoint_seconds: least time between two checkpoints. They are written at the end of an
            epoch, at the very end, and on Ctrl-C or SIGTERM.
        progress: show the progress on standard error, or as the present of these `Steps`.
        tensorboard: write events for TensorBoard too.
        callbacks: told the record of each epoch.

    Raises `Interrupted` after Ctrl-C or SIGTERM, with the state of the last whole epoch on disk.
    """
    if not re.fullmatch(r"[A-Za-z0-9_-]+", stage):
        raise InputError(
            f"stage names files, so it must be made of letters, digits, - and _; got {stage!r}."
        )
    check("select", select, Options("both", "x->y", "y->x"))
    check("epochs", epochs, Whole(at_least=0), Options(None))
    if epochs is None and valid is None:
        raise InputError(
            "Without validation pairs nothing says when to stop: pass valid, or a fixed "
            "number of epochs."
        )
    if epochs is not None and validate_first:
        raise InputError(f"validate_first needs validation, and epochs={epochs} trains without it.")
    if folder is None and (resume or tensorboard):
        raise InputError(f"{'resume' if resume else 'tensorboard'} needs a folder; pass folder=.")
    if folder is not None and folder.exists() and not folder.is_dir():
        raise InputError(f"folder must be a folder, and {str(folder)!r} is a file.")
    if epochs is not None:
        valid = None
    check_pairs(train, valid, one_per_group=settings.one_per_group)
    length = epoch_length(train, one_per_group=settings.one_per_group)
    check_ranks(model, min(settings.batch_size, length))
    check_precision(settings, next(model.parameters()).device)

    copy_from_rank_0(model, objective)
    state = State(model, objective, settings)
    schedule = Schedule.of(settings, epochs=epochs, rival=rival)
    checkpointer = Checkpointer(
        state,
        schedule,
        folder=folder,
        stage=stage,
        facts={
            **settings.as_dict(),
            "epochs": epochs,
            "validate_first": validate_first,
            "select": select if score is None else "score from 0 to 1",
            "number of training pairs": len(train),
            "number of validation pairs": 0 if valid is None else len(valid),
        },
        every=checkpoint_seconds,
    )
    checkpointer.open(resume=resume, tensorboard=tensorboard, callbacks=callbacks)
    with batch_norm_over_ranks(model), unbiased_batch_norm(model), catch_signals() as signals:
        steps = progress if isinstance(progress, Steps) else None
        enabled = bool(progress) and distributed.rank() == 0
        expected = None if valid is None else schedule.expected_epochs
        line = Progress(stage, schedule.max_epochs, enabled=enabled, steps=steps, expected=expected)
        choice = (select, score, correct, signals)
        loop = _Loop(state, schedule, checkpointer, train, valid, settings, *choice, line)
        try:
            loop.run(validate_first=validate_first)
        except _Stop:
            # The signal may have come to another rank.
            signals.requested = signals.requested or signal.SIGINT
            checkpointer.save()
            wait_for_all()  # torchrun ends the others as soon as one process has failed
        finally:
            checkpointer.close()
            line.close()
        if signals.requested is not None:
            kept = "Nothing was kept, since no folder was given."
            if folder is not None:
                kept = (
                    f"The state after epoch {schedule.epoch} is in {str(folder)!r}; start again "
                    "with resume=True to go on from there."
                )
            raise Interrupted(f"Training was interrupted. {kept}", signals.requested)
    best = None if valid is None else schedule.best
    return History(checkpointer.records, schedule.best_epoch, best, schedule.epoch)


class _Stop(BaseException):
    """A signal came. It is no Exception, so that no handler on the way swallows it."""


@dataclass(frozen=True)
class _Loop:
    """One run: `_epoch` takes steps, validates, asks the schedule and finishes the epoch."""

    state: State
    schedule: Schedule
    checkpointer: Checkpointer
    train: Features
    valid: Features | None
    settings: Settings
    select: Select
    score: Score | None
    correct: Correct | None
    signals: Signals
    progress: Progress

    def run(self, *, validate_first: bool) -> None:
        """All epochs that are left; then the model becomes the best one."""
        if validate_first and not self.checkpointer.records:
            started, scores = time.perf_counter(), self._validate()
            self.schedule.start(self._value(scores))
            self._finish_epoch(0, started, scores, verdict="best")
        while not self.schedule.finished:
            self._epoch(self.schedule.epoch + 1)
        if self.schedule.best is None and self.schedule.epoch:
            raise CcalError(
                "Training diverged: the loss or its gradient was not finite in epoch "
                f"{self.schedule.epoch}, and there is no earlier epoch to keep. Lower "
                f"learning_rate (it was {self.schedule.learning_rate:g}), or allow refinements, "
                "which do so."
            )
        self.checkpointer.save()
        self.state.restore(self.checkpointer.best)
        state = self.state
        if self.valid is None:
            state.copy_buffers()
            self._refit()
        if state.kept is not state.model:
            state.model.load_state_dict(state.kept.state_dict())
        state.model.eval()

    def _epoch(self, epoch: int) -> None:
        """Steps, projections, validation, and the verdict of the schedule."""
        started = time.perf_counter()
        learning_rate = self.schedule.learning_rate
        self.state.set_learning_rate(learning_rate)
        loss, speed = self._steps(epoch)
        if self.valid is None:  # every epoch with a finite loss is as good as the best, so kept
            scores, value = self._unknown(), None if loss is None else 0.0
        else:
            scores = self._unknown() if loss is None else self._validate_trained()
            value = self._value(scores)
        verdict = self.schedule.update(value)
        steps = {"loss": loss, "learning_rate": learning_rate, "pairs_per_second": speed}
        self._finish_epoch(epoch, started, scores, verdict, **steps)

    def _steps(self, epoch: int) -> tuple[float | None, float | None]:
        """Mean loss over the batches of an epoch, and pairs a second; None if it diverged."""
        settings = self.settings
        draw: dict[str, Any] = {"stage": self.checkpointer.stage, "epoch": epoch}
        seed_epoch(settings.seed, **draw)
        self.state.model.train()
        self.state.objective.train()
        visited = epoch_rows(self.train, settings, **draw)
        order = epoch_batches(len(visited), settings.batch_size, seed=settings.seed, **draw)
        batches = [visited[rows] for rows in order]
        total, done, pairs = 0.0, 0, sum(map(len, batches))
        started = time.perf_counter()
        for number, rows in enumerate(batches, start=1):
            loss = self._step(rows)
            if not math.isfinite(loss):
                return None, None
            total, done = total + loss, done + len(rows)
            self.progress.batch(epoch=epoch, done=done, total=pairs, loss=total / number)
        return total / len(batches), pairs / (time.perf_counter() - started)

    def _step(self, rows: RowNumbers) -> float:
        """One step on a batch; returns its loss, or NaN without a step if it diverged."""
        state, mine, device = self.state, share(rows), self._device
        x, y = (view.to(device, non_blocking=True) for view in self.train.batch(mine))
        labels = self._labels(mine)
        state.optimiser.zero_grad()
        try:
            # CCA and losses stay in full precision.
            half = self.settings.precision == "bf16"
            with torch.autocast(device.type, torch.bfloat16, enabled=half):
                loss: Tensor = state.objective(state.model, x, y, *labels)
            loss.backward()
        except (InputError, _LinAlgError):
            if towers_diverged(state.model, x, y):
                return math.nan
            raise
        signalled = float(self.signals.requested is not None)
        value, signalled = average_gradients(state.parameters, loss.item(), signalled)
        gradients = [p.grad for p in state.parameters if p.grad is not None]
        if not math.isfinite(value) or not torch.nn.utils.get_total_norm(gradients).isfinite():
            return math.nan
        state.step()
        if signalled:  # on all ranks after the same batch
            raise _Stop
        return value

    def _labels(self, rows: RowNumbers) -> tuple[Tensor, ...]:
        """The last argument of the objective: labels of these pairs; nothing without labels."""
        of: Callable[[RowNumbers], Tensor | None] | None = getattr(self.train, "labels", None)
        labels = of(rows) if of is not None and self.settings.mask_labels else None
        return () if labels is None else (labels.to(self._device, non_blocking=True),)

    def _refit(self) -> None:
        """Fit the projections to the training pairs, or to some; each rank reads its share."""
        kept, pairs = self.state.kept, len(self.train)
        count = min(pairs, self.settings.refit_pairs or pairs)
        mine = share(np.arange(count) * pairs // count)
        kept.refit(blocks(kept, self.train, mine, self._block, self._check_signals))

    def _validate(self) -> Scores:
        """Fit the projections, then score the validation pairs."""
        self.state.copy_buffers()
        kept, valid, score = self.state.kept, self.valid, self.score
        assert valid is not None
        self._refit()
        if score is not None:
            return {"score": from_rank_0(lambda: score(kept.eval()))}

        positives, firsts = self._relation

        def mrr() -> tuple[float, float]:
            x, y = embed_items(kept, valid, firsts, self._block, self._check_signals)
            x, y = (x, y) if self.correct is None else self.correct(kept, x, y)
            # Embeddings that collapse to one point must not be chosen.
            return mean_reciprocal_ranks(x, y, positives=positives, pessimistic=True)

        return dict(zip(self._unknown(), from_rank_0(mrr), strict=True))

    @cached_property
    def _relation(self) -> tuple[Positives, tuple[RowNumbers, RowNumbers]]:
        """Which validation items belong together, and the first pair of each x and of each y."""
        assert self.valid is not None
        return relation(self.valid)

    def _validate_trained(self) -> Scores:
        """The same after steps, which may have let the weights overflow: unknown scores then."""
        try:
            return self._validate()
        except (InputError, _LinAlgError):
            pairs = [self.train, self.valid]
            if any(any_diverged(self.state.kept, p, self._block) for p in pairs if p is not None):
                return self._unknown()
            raise

    def _unknown(self) -> Scores:
        names = ("mrr_x_to_y", "mrr_y_to_x") if self.score is None else ("score",)
        return dict.fromkeys(names)

    def _value(self, scores: Scores) -> float | None:
        """The number that decides which epoch is the best."""
        known = [value for value in scores.values() if value is not None]
        deciding = {"x->y": known[:1], "y->x": known[-1:]}.get(self.select, known)
        return sum(deciding) / len(deciding) if deciding else None

    def _finish_epoch(
        self, epoch: int, started: float, scores: Scores, verdict: str, **steps: float | None
    ) -> None:
        """Record the epoch, and take or restore a snapshot as the verdict says."""
        correlation, known = None, None not in scores.values()
        if known and isinstance(projection := self.state.kept.projection, CCALayer):
            correlation = projection.correlations.mean().item()
        counted = self.valid is not None and self.score is None
        n, m = self._relation[0].shape if counted else (None, None)
        record: Record = {
            "stage": self.checkpointer.stage,
            "epoch": epoch,
            "loss": steps.get("loss"),
            "learning_rate": steps.get("learning_rate"),
            "mrr_x_to_y": None,
            "mrr_y_to_x": None,
            "candidates_x_to_y": m,
            "candidates_y_to_x": n,
            "mean_correlation": correlation,
            "seconds": time.perf_counter() - started,
            "pairs_per_second": steps.get("pairs_per_second"),
            **scores,
        }
        if verdict == "refine":
            self.state.restore(self.checkpointer.best)
        self.checkpointer.add(record, best=verdict == "best")
        self.progress.epoch(
            score=self._value(scores),
            best=self.schedule.best,
            name="MRR" if self.score is None else "score",
            expected=None if self.valid is None else self.schedule.expected_epochs,
            candidates=None if m is None or n is None else (m, n),
        )

    def _check_signals(self) -> None:
        if self.signals.requested is not None and distributed.world_size() == 1:
            raise _Stop  # several ranks agree on it in `_step`

    @property
    def _device(self) -> torch.device:
        return next(self.state.model.parameters()).device

    @property
    def _block(self) -> int:
        return max(self.settings.batch_size, 256)  # without gradients, products may be large
