"""The training loop: epochs, validation, the paper's schedule, and a state that survives."""

from __future__ import annotations

import signal
from pathlib import Path

from torch import nn

from ccal import distributed
from ccal.model import DualEncoder
from ccal.training.batch_norm import batch_norm_over_ranks, unbiased_batch_norm
from ccal.training.batches import Features
from ccal.training.checks import check_data, check_options, check_ranks
from ccal.training.keeper import Keeper
from ccal.training.metrics import History
from ccal.training.parallel import copy_from_rank_0, wait_for_all
from ccal.training.precision import check_precision
from ccal.training.progress import Progress
from ccal.training.run import Run, Score, Select, Stop
from ccal.training.schedule import Schedule
from ccal.training.settings import Settings
from ccal.training.signals import Interrupted, catch_signals
from ccal.training.state import State

__all__ = ["fit"]


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
    checkpoint_seconds: float = 20.0,
    progress: bool = True,
    tensorboard: bool = False,
) -> History:
    """Train a model; afterwards it holds the best weights and projections, in evaluation mode.

    The same seed on the same machine gives the same weights, and so does a run that was killed at
    any moment and resumed. Under torch.distributed every rank calls `fit` with the same arguments,
    and together they take the steps of one process. torch's global generator is seeded each epoch.

    Args:
        model: on the device to train on.
        objective: `objective(model, x, y)` is the loss, a scalar; it may have parameters. x and y
            are this rank's rows of a batch, and embeddings must go through
            `ccal.distributed.all_gather` before they are compared. If `train` has labels and
            `settings.mask_labels` is true, the call is `objective(model, x, y, labels)`.
        train: training pairs.
        valid: validation pairs, None if `epochs` says how long to train.
        settings: optimiser, schedule, batch size, precision, seed.
        folder: for checkpoint-STAGE.pt, metrics.jsonl and tensorboard/; None keeps nothing.
        resume: go on from the checkpoint in `folder`, or start if there is none.
        stage: name in progress and metrics; stages of different names can share a folder.
        epochs: train for so many, without validation and schedule.
        validate_first: the model as given is epoch 0 and may stay the best.
        select: direction of the validation MRR that chooses the best epoch, or the mean of both.
        score: how good a model is, in place of the validation MRR; `score(model)` is called after
            each epoch with projections of that epoch, and the highest value is the best.
        checkpoint_seconds: of training between checkpoints, at least; they are made at the end of
            epochs, at the very end and on Ctrl-C or SIGTERM.
        progress: tell on standard error how it goes.
        tensorboard: write events for TensorBoard too.

    Raises `Interrupted` after Ctrl-C or SIGTERM, with the state of the last whole epoch on disk.
    """
    check_options(
        stage=stage,
        epochs=epochs,
        validates=valid is not None,
        validate_first=validate_first,
        select=select,
        folder=folder,
        resume=resume,
        tensorboard=tensorboard,
    )
    if epochs is not None:
        valid = None
    check_data(train, valid, one_per_group=settings.one_per_group)
    check_ranks(model, train, settings)
    check_precision(settings, next(model.parameters()).device)
    copy_from_rank_0(model, objective)
    state, schedule = State(model, objective, settings), Schedule.of(settings, epochs=epochs)
    keeper = Keeper(
        state,
        schedule,
        folder=folder,
        stage=stage,
        facts={
            **settings.as_dict(),
            "epochs": epochs,
            "validate_first": validate_first,
            "select": select,
            "number of training pairs": len(train),
            "number of validation pairs": 0 if valid is None else len(valid),
        },
        every=checkpoint_seconds,
    )
    keeper.open(resume=resume, tensorboard=tensorboard)
    with batch_norm_over_ranks(model), unbiased_batch_norm(model), catch_signals() as signals:
        line = Progress(stage, schedule.max_epochs, enabled=progress and distributed.rank() == 0)
        run = Run(
            state,
            schedule,
            keeper,
            train,
            valid,
            settings,
            select=select,
            score=score,
            signals=signals,
            progress=line,
        )
        try:
            run.train(validate_first=validate_first)
        except Stop:
            # Another rank's signal is ours too.
            signals.requested = signals.requested or signal.SIGINT
            keeper.save()
            # torchrun ends the other processes as soon as one has failed.
            wait_for_all()
        finally:
            keeper.close()
            line.close()
        if signals.requested is not None:
            raise Interrupted(_how_to_go_on(keeper.path, schedule.epoch), signals.requested)
    best = None if valid is None else schedule.best
    return History(keeper.records, schedule.best_epoch, best, schedule.epoch)


def _how_to_go_on(checkpoint: Path | None, epoch: int) -> str:
    if checkpoint is None:
        return "Training was interrupted. Nothing was kept, since no folder was given."
    return (
        f"Training was interrupted. The state after epoch {epoch} is in {str(checkpoint)!r}; "
        "start again with resume=True to go on from there."
    )
