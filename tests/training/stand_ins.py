"""A small training job that tests and the processes they start share."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ccal.encoders import DenseTower
from ccal.losses import InfoNCELoss
from ccal.model import DualEncoder
from ccal.training.loop import fit
from ccal.training.progress import History
from ccal.training.settings import Settings
from tests.reference import correlated_views

TIMINGS = ("seconds", "pairs_per_second")


class Arrays:
    """Pairs from two matrices."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def double(self) -> Arrays:
        return Arrays(self.x.double(), self.y.double())

    def batch(self, rows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        return self.x[rows], self.y[rows]


class Signalling(Arrays):
    """Sends this process signals when given numbers of batches were read."""

    def __init__(self, data: Arrays, *moments: int) -> None:
        super().__init__(data.x, data.y)
        self.moments, self.count = moments, 0

    def batch(self, rows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        self.count += 1
        if self.count in self.moments:
            signal.raise_signal(signal.SIGINT)
        return super().batch(rows)


class Contrast(nn.Module):
    """InfoNCE of the embeddings of all ranks, with a temperature that is learned."""

    def __init__(self) -> None:
        super().__init__()
        self.loss = InfoNCELoss(temperature=0.1, learnable=True, gather=True)

    def forward(self, model: DualEncoder, x: Tensor, y: Tensor) -> Tensor:
        loss: Tensor = self.loss(*model(x, y))
        return loss


def pairs(n: int = 200, *, start: int = 0) -> Arrays:
    x, y = correlated_views(1000, 6, 9, dtype=torch.float32)
    return Arrays(x[start : start + n], y[start : start + n])


def make_model(
    projection: Any = "cca", *, hidden: tuple[int, ...] = (8,), dropout: float = 0.0, **cca: Any
) -> DualEncoder:
    torch.manual_seed(1)
    return DualEncoder(
        dim=4,
        projection=projection,
        cca=cca,
        image=DenseTower(6, 4, hidden=hidden, dropout=dropout),
        text=DenseTower(9, 4),
    )


def quick(**changes: Any) -> Settings:
    options: dict[str, Any] = {
        "batch_size": 64,
        "max_epochs": 4,
        "learning_rate": 0.01,
        "averaging": 0.0,
        "train_on_all": False,
        "patience": 3,
        "refine_patience": 2,
    }
    return Settings(**{**options, **changes})


def run(
    settings: Settings | None = None,
    *,
    model: DualEncoder | None = None,
    objective: nn.Module | None = None,
    train: Arrays | None = None,
    **options: Any,
) -> tuple[DualEncoder, History]:
    """Train a model on small data; it and its history."""
    model = make_model() if model is None else model
    history = fit(
        model,
        Contrast() if objective is None else objective,
        pairs() if train is None else train,
        options.pop("valid", pairs(60, start=900)),
        settings or quick(),
        **{"progress": False, **options},
    )
    return model, history


def untimed(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records without what differs from run to run."""
    return [{k: v for k, v in r.items() if k not in TIMINGS} for r in records]


LONG = quick(
    max_epochs=30,
    patience=2,
    refine_patience=2,
    refinements=3,
    averaging=0.9,
    learning_rate=0.03,
    batch_size=32,
)
"""With weight averages and refinements, for runs that are broken off."""


def long_run(folder: str, result: str) -> None:
    """In a process of its own: train or resume, then leave weights in the file `result`."""
    torch.set_num_threads(1)
    model, history = run(
        LONG,
        folder=Path(folder),
        resume=True,
        train=pairs(400),
        checkpoint_seconds=0.0,
        validate_first=True,
        model=make_model(momentum=0.5, dropout=0.1),
    )
    torch.save({"model": model.state_dict(), "records": history.records}, result)
