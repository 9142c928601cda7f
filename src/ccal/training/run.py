"""The epochs of a training run: steps, validation, and what the schedule makes of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ccal import distributed
from ccal.errors import CcalError, InputError
from ccal.model import DualEncoder
from ccal.training.batches import (
    Features,
    Rows,
    epoch_batches,
    one_of_each,
    seed_epoch,
    share,
    some_of,
)
from ccal.training.keeper import Keeper
from ccal.training.metrics import Record
from ccal.training.parallel import average_gradients, from_rank_0
from ccal.training.precision import tower_precision
from ccal.training.progress import Progress
from ccal.training.schedule import Schedule
from ccal.training.settings import Settings
from ccal.training.signals import Signals
from ccal.training.state import State
from ccal.training.validation import (
    any_diverged,
    mean_correlation,
    refit,
    towers_diverged,
    validation_mrr,
)

__all__ = ["Run", "Score", "Select", "Stop"]

Select = Literal["both", "x->y", "y->x"]
Score = Callable[[DualEncoder], float]
"""How good a model in evaluation mode is; the higher, the better."""

_LinAlgError: type[Exception] = torch.linalg.LinAlgError  # type: ignore[attr-defined]


class Stop(BaseException):
    """A signal came. No `except Exception` on the way may swallow it."""


class Run:
    """The parts of one training run, in the order in which they work."""

    def __init__(
        self,
        state: State,
        schedule: Schedule,
        keeper: Keeper,
        train: Features,
        valid: Features | None,
        settings: Settings,
        *,
        select: Select,
        score: Score | None,
        signals: Signals,
        progress: Progress,
    ) -> None:
        self.state, self.schedule, self.keeper = state, schedule, keeper
        self.train_pairs, self.valid_pairs, self.settings = train, valid, settings
        self.select, self.score = select, score
        self.signals, self.progress = signals, progress
        self.device = next(state.model.parameters()).device
        # Without gradients even a small batch size need not mean many small products.
        self.block = max(settings.batch_size, 256)

    def train(self, *, validate_first: bool) -> None:
        """All epochs from where the keeper stands; then the model becomes the best."""
        if validate_first and not self.keeper.records:
            self._start()
        while not self.schedule.finished:
            self._epoch(self.schedule.epoch + 1)
        if self.schedule.best is None and self.schedule.epoch:
            raise CcalError(
                "Training diverged: the loss or its gradient was not finite in epoch "
                f"{self.schedule.epoch}, and there is no earlier epoch to keep. Lower "
                f"learning_rate (it was {self.schedule.learning_rate:g}), or allow refinements, "
                "which do so."
            )
        self.keeper.save()
        self.keeper.back_to_best()
        state = self.state
        if self.valid_pairs is None:
            state.prepare_kept()
            self._refit()
        if state.kept is not state.model:
            state.model.load_state_dict(state.kept.state_dict())
        state.model.eval()

    def _start(self) -> None:
        started = time.perf_counter()
        scores = self._validate()
        self.schedule.start(self._score(scores))
        self._record(started, scores=scores, epoch=0, best=True)

    def _epoch(self, epoch: int) -> None:
        started = time.perf_counter()
        learning_rate = self.schedule.learning_rate
        self.state.set_learning_rate(learning_rate)
        loss, rate = self._steps(epoch)
        scores: tuple[float, ...] | None = None
        if loss is not None and self.valid_pairs is not None:
            scores = self._validate_trained()
        score = self._score(scores)
        if loss is not None and self.valid_pairs is None:
            # Equal counts as improvement: without validation every sound epoch is the best.
            score = 0.0
        verdict = self.schedule.update(score)
        self._record(
            started,
            scores=scores,
            epoch=epoch,
            loss=loss,
            learning_rate=learning_rate,
            pairs_per_second=rate,
            best=verdict == "best",
            refine=verdict == "refine",
        )

    def _steps(self, epoch: int) -> tuple[float | None, float | None]:
        """Mean loss over the batches of an epoch and pairs a second; None if it went astray."""
        seed, stage = self.settings.seed, self.keeper.stage
        seed_epoch(seed, stage, epoch)
        self.state.model.train()
        self.state.objective.train()
        visited = self._rows(epoch)
        size = self.settings.batch_size
        batches = [
            visited[places]
            for places in epoch_batches(len(visited), size, seed=seed, stage=stage, epoch=epoch)
        ]
        total, done, pairs = 0.0, 0, sum(map(len, batches))
        started = time.perf_counter()
        for number, rows in enumerate(batches, start=1):
            loss = self._step(rows)
            if not math.isfinite(loss):
                return None, None
            total, done = total + loss, done + len(rows)
            self.progress.batch(epoch=epoch, done=done, total=pairs, loss=total / number)
        return total / len(batches), pairs / (time.perf_counter() - started)

    def _rows(self, epoch: int) -> Rows:
        """The training pairs of an epoch: all, one of each group, or so many of these."""
        groups: Rows | None = getattr(self.train_pairs, "groups", None)
        seed, stage = self.settings.seed, self.keeper.stage
        if groups is None or not self.settings.one_per_group:
            rows = np.arange(len(self.train_pairs))
        else:
            rows = one_of_each(groups, seed=seed, stage=stage, epoch=epoch)
        return some_of(rows, self.settings.epoch_pairs, seed=seed, stage=stage, epoch=epoch)

    def _labels(self, rows: Rows) -> tuple[Tensor, ...]:
        """The labels of some pairs, as the objective takes them; nothing if there are none."""
        of: Callable[[Rows], Tensor | None] | None = getattr(self.train_pairs, "labels", None)
        labels = of(rows) if of is not None and self.settings.mask_labels else None
        return () if labels is None else (labels.to(self.device, non_blocking=True),)

    def _step(self, rows: Rows) -> float:
        """One step on a batch; its loss, NaN if it diverged and no step was taken."""
        state, mine = self.state, share(rows)
        x, y = (view.to(self.device, non_blocking=True) for view in self.train_pairs.batch(mine))
        labels = self._labels(mine)
        state.optimiser.zero_grad()
        try:
            with tower_precision(self.settings, self.device):
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
        if signalled:
            # The flag came with the gradients, so that all ranks stop after the same batch.
            raise Stop
        return value

    def _refit(self) -> None:
        pairs = self.settings.refit_pairs
        refit(self.state.kept, self.train_pairs, self.block, self._check_signals, pairs)

    def _validate(self) -> tuple[float, ...]:
        """The MRR of both directions; or the one value of a score that was given."""
        self.state.prepare_kept()
        kept, valid, score = self.state.kept, self.valid_pairs, self.score
        assert valid is not None
        self._refit()
        if score is not None:
            return from_rank_0(lambda: (score(kept.eval()),))
        return from_rank_0(lambda: validation_mrr(kept, valid, self.block, self._check_signals))

    def _validate_trained(self) -> tuple[float, ...] | None:
        """The same, but None if the weights have grown so much that features overflow."""
        try:
            return self._validate()
        except (InputError, _LinAlgError):
            pairs = [self.train_pairs, self.valid_pairs]
            if any(any_diverged(self.state.kept, p, self.block) for p in pairs if p is not None):
                return None
            raise

    def _score(self, scores: tuple[float, ...] | None) -> float | None:
        if scores is None:
            return None
        if self.score is not None:
            return scores[0]
        return {"both": sum(scores) / 2, "x->y": scores[0], "y->x": scores[1]}[self.select]

    def _check_signals(self) -> None:
        # Several ranks stop in `_step` only, where they agree on it.
        if self.signals.requested is not None and distributed.world_size() == 1:
            raise Stop

    def _record(
        self,
        started: float,
        *,
        scores: tuple[float, ...] | None,
        epoch: int,
        best: bool,
        loss: float | None = None,
        learning_rate: float | None = None,
        pairs_per_second: float | None = None,
        refine: bool = False,
    ) -> None:
        ranked = scores if self.score is None else None
        record: Record = {
            "stage": self.keeper.stage,
            "epoch": epoch,
            "loss": loss,
            "learning_rate": learning_rate,
            "mrr_x_to_y": None if ranked is None else ranked[0],
            "mrr_y_to_x": None if ranked is None else ranked[1],
            "mean_correlation": None if scores is None else mean_correlation(self.state.kept),
            "seconds": time.perf_counter() - started,
            "pairs_per_second": pairs_per_second,
        }
        if self.score is not None:
            record["score"] = self._score(scores)
        if refine:
            self.keeper.back_to_best()
        self.keeper.add(record, best=best)
        name = "MRR" if self.score is None else "score"
        self.progress.epoch(mrr=self._score(scores), best=self.schedule.best, name=name)
