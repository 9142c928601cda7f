"""The epochs of a training in MLflow. Needs `mlflow` (or `mlflow-skinny`)."""

from __future__ import annotations

from ccal.optional import require
from ccal.training.progress import Record


class MLflowCallback:
    """Logs the numbers of each epoch to the active run of MLflow: `fit(..., callbacks=[...])`.

    A metric is called by its stage, such as `train/loss`.
    """

    def __init__(self) -> None:
        self._mlflow = require("mlflow", package="mlflow-skinny", purpose="Logging to MLflow")

    def add(self, record: Record) -> None:
        """Log one epoch."""
        numbers = {
            f"{record['stage']}/{name}": value
            for name, value in record.items()
            if isinstance(value, float)
        }
        self._mlflow.log_metrics(numbers, step=record["epoch"])

    def close(self) -> None:
        """The run stays open for the next stage."""
