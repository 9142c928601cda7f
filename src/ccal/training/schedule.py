"""The paper's schedule: wait for better validation scores, then refine from the best weights."""

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self, TypeGuard

from ccal.training.settings import Settings

Verdict = Literal["best", "wait", "refine", "stop"]


@dataclass(kw_only=True)
class Schedule:
    """Decides after each epoch, from its validation score, how to go on; it holds no tensors.

    After `patience` epochs without a score at least as good as the best, the best weights and their
    optimiser state come back with a tenth of the learning rate, and patience is `refine_patience`
    from then on. Training ends after `refinements` of these returns, or after `max_epochs`. While
    the best score is below that of a `rival`, patience is half as long.

    >>> schedule = Schedule(
    ...     initial_rate=0.1, max_epochs=9, patience=2, refine_patience=1, refinements=1
    ... )
    >>> [schedule.update(score) for score in (0.4, 0.5, 0.4, 0.3, 0.5, 0.2)]
    ['best', 'best', 'wait', 'refine', 'best', 'stop']
    >>> schedule.best_epoch, schedule.learning_rate, schedule.finished
    (5, 0.01, True)
    """

    initial_rate: float
    max_epochs: int
    patience: int
    refine_patience: int
    refinements: int
    rival: float | None = None
    epoch: int = 0
    best: float | None = None
    best_epoch: int = 0
    waited: int = 0
    refined: int = 0
    stopped: bool = False

    @classmethod
    def of(
        cls, settings: Settings, *, epochs: int | None = None, rival: float | None = None
    ) -> Self:
        """The schedule of `settings`, or a fixed number of epochs."""
        return cls(
            initial_rate=float(settings.learning_rate),
            max_epochs=settings.max_epochs if epochs is None else epochs,
            patience=settings.patience,
            refine_patience=settings.refine_patience,
            refinements=settings.refinements,
            rival=rival,
        )

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next epoch."""
        return self.initial_rate / 10.0**self.refined

    @property
    def finished(self) -> bool:
        """Whether there is no next epoch."""
        return self.stopped or self.epoch >= self.max_epochs

    @property
    def expected_epochs(self) -> int:
        """A guess of the last epoch: no sooner than if no score gets better from now on."""
        limit = self._limit
        last = self.refinements * self.refine_patience
        sooner = self.epoch + limit - self.waited + last - self.refined * self.refine_patience
        return min(self.max_epochs, max(sooner, 5 * self.patience // 2 + last))

    @property
    def _limit(self) -> int:
        """Epochs without a better score before the next verdict than "wait"."""
        limit = self.refine_patience if self.refined else self.patience
        behind = self.rival is not None and (self.best is None or self.best < self.rival)
        return -(-limit // 2) if behind else limit

    def start(self, score: float | None) -> None:
        """Make the score of the weights before training, epoch 0, the one to beat."""
        self.best = score if _usable(score) else None

    def update(self, score: float | None) -> Verdict:
        """The verdict on the epoch just trained.

        `score` is higher for better; None, NaN or infinity means that the epoch diverged, which
        ends patience at once.
        """
        self.epoch += 1
        if _usable(score) and (self.best is None or score >= self.best):
            self.best, self.best_epoch, self.waited = score, self.epoch, 0
            return "best"
        self.waited += 1
        if _usable(score) and self.waited < self._limit:
            return "wait"
        if self.refined == self.refinements or self.epoch >= self.max_epochs:
            self.stopped = True
            return "stop"
        self.refined, self.waited = self.refined + 1, 0
        return "refine"

    def state_dict(self) -> dict[str, Any]:
        """All attributes as plain data."""
        return asdict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        vars(self).update(state)


def _usable(score: float | None) -> TypeGuard[float]:
    return score is not None and math.isfinite(score)
