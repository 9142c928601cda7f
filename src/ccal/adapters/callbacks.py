"""Callbacks that log the epochs of a training elsewhere, each with the package of its name."""

from __future__ import annotations

from ccal.optional import require
from ccal.training.progress import Record, numbers


class MLflowCallback:
    """Logs the numbers of each epoch to the active run of MLflow: `fit(..., callbacks=[...])`.

    A metric is called by its stage, such as `train/loss`.
    """

    def __init__(self) -> None:
        self._mlflow = require("mlflow", package="mlflow-skinny", purpose="Logging to MLflow")

    def add(self, record: Record) -> None:
        """Log one epoch."""
        logged = {f"{record['stage']}/{name}": value for name, value in numbers(record).items()}
        self._mlflow.log_metrics(logged, step=record["epoch"])

    def close(self) -> None:
        """The run stays open for the next stage."""


class WandbCallback:
    """Logs the numbers of each epoch to the active run of W&B: `fit(..., callbacks=[...])`.

    Call `wandb.init()` before, with `mode="offline"` where there is no network. A metric is called
    by its stage, such as `train/loss`, and is drawn over the epochs of the stage.
    """

    def __init__(self) -> None:
        self._wandb = require("wandb", package="wandb", purpose="Logging to W&B")

    def add(self, record: Record) -> None:
        """Log one epoch."""
        stage = record["stage"]
        # W&B's own step only grows; the epochs of each stage begin at 1.
        self._wandb.define_metric(f"{stage}/*", step_metric=f"{stage}/epoch")
        logged = {"epoch": record["epoch"], **numbers(record)}
        self._wandb.log({f"{stage}/{name}": value for name, value in logged.items()})

    def close(self) -> None:
        """The run stays open for the next stage."""
