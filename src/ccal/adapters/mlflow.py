"""The epochs of a training in MLflow. Needs `mlflow` (or `mlflow-skinny`)."""

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
