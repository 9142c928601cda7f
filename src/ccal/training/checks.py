"""What `fit` refuses at the door."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from torch import Tensor

from ccal import distributed
from ccal.cca import CCALayer
from ccal.errors import InputError
from ccal.model import DualEncoder
from ccal.training.batches import Features
from ccal.training.settings import Settings

__all__ = ["check_data", "check_options", "check_ranks"]


def check_options(
    *,
    stage: str,
    epochs: int | None,
    validates: bool,
    validate_first: bool,
    select: str,
    folder: Path | None,
    resume: bool,
    tensorboard: bool,
) -> None:
    """Refuse options that do not fit together."""
    if not re.fullmatch(r"[A-Za-z0-9_-]+", stage):
        raise InputError(
            f"stage names files, so it must be made of letters, digits, - and _; got {stage!r}."
        )
    if select not in ("both", "x->y", "y->x"):
        raise InputError(f"select must be 'both', 'x->y' or 'y->x', got {select!r}.")
    if epochs is not None and epochs < 0:
        raise InputError(f"epochs must be 0 or more, got {epochs}.")
    if epochs is None and not validates:
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


def check_data(train: Features, valid: Features | None, *, one_per_group: bool) -> None:
    """Refuse too few pairs, and training and validation pairs of different kinds."""
    if len(train) < 2:
        raise InputError(f"Training needs at least 2 pairs, got {len(train)}.")
    if one_per_group and _groups(train) == 1:
        raise InputError(
            "All training pairs are of one group, and one_per_group takes one pair of each; "
            "set it to false."
        )
    shapes = _shapes(train, "training")
    if valid is None:
        return
    if len(valid) < 2:
        raise InputError(
            f"Validation needs at least 2 pairs for one to be found among others, got "
            f"{len(valid)}; better are some hundreds."
        )
    for view, ours, theirs in zip("xy", shapes, _shapes(valid, "validation"), strict=True):
        if ours != theirs:
            raise InputError(
                f"View {view} has shape {ours} a pair in training, but {theirs} in validation."
            )


def check_ranks(model: DualEncoder, train: Features, settings: Settings) -> None:
    """Refuse what cannot be shared by all torch.distributed ranks."""
    ranks = distributed.world_size()
    smallest = min(settings.batch_size, len(train))
    if settings.one_per_group:
        smallest = min(smallest, _groups(train) or smallest)
    if smallest < ranks:
        raise InputError(
            f"A batch of {smallest} pairs cannot be shared by {ranks} processes; start fewer."
        )
    if ranks > 1 and isinstance(model.projection, CCALayer) and not model.projection.sync:
        raise InputError(
            f"The CCA layer has sync=False, so {ranks} processes would train {ranks} models; "
            "use sync=True or one process."
        )


def _groups(features: Features) -> int | None:
    """How many groups there are; None if pairs have none."""
    groups = getattr(features, "groups", None)
    return None if groups is None else len(np.unique(groups))


def _shapes(features: Features, name: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    x, y = features.batch(np.arange(2))
    for view, tensor in (("x", x), ("y", y)):
        if not isinstance(tensor, Tensor) or len(tensor) != 2 or not tensor.is_floating_point():
            raise InputError(
                f"View {view} of 2 {name} pairs must be a floating tensor of 2 rows, got "
                f"{getattr(tensor, 'dtype', type(tensor).__name__)} of shape "
                f"{tuple(getattr(tensor, 'shape', ()))}."
            )
    return tuple(x.shape[1:]), tuple(y.shape[1:])
