"""The epochs of a training in Weights & Biases. Needs `wandb`."""

from __future__ import annotations

from ccal.optional import require
from ccal.training.progress import Record, numbers


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
