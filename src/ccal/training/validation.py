"""Exact projections from all training pairs, and how well validation pairs find each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from ccal.cca import CCALayer
from ccal.errors import InputError
from ccal.evaluation import class_precisions, reachable_k
from ccal.model import DualEncoder
from ccal.ranks import mean_reciprocal_rank
from ccal.training.batches import Features, Rows, share
from ccal.training.features import PairFeatures

__all__ = [
    "any_diverged",
    "mean_correlation",
    "refit",
    "towers_diverged",
    "validation_mrr",
    "validation_precision",
    "validation_precisions",
]


def refit(
    model: DualEncoder,
    train: Features,
    batch_size: int,
    each: Callable[[], None] = lambda: None,
    pairs: int | None = None,
) -> None:
    """Store CCA's projections of all training pairs, or of so many, evenly spread over them.

    Every rank passes over its share of them. `each` is called before every batch.
    """
    count = min(len(train), pairs or len(train))
    rows = np.arange(count) * len(train) // count
    model.refit(_blocks(model, train, share(rows), batch_size, each))


def validation_mrr(
    model: DualEncoder, valid: Features, batch_size: int, each: Callable[[], None] = lambda: None
) -> tuple[float, float]:
    """MRR of finding y from x, and x from y, among all validation pairs.

    Ties count against the counterpart: embeddings that collapse to one point must not be chosen.
    """
    name_x, name_y = model.modalities
    views: tuple[list[Tensor], list[Tensor]] = ([], [])
    for x, y in _blocks(model, valid, np.arange(len(valid)), batch_size, each):
        views[0].append(model.encode(name_x, x, corrected=False))
        views[1].append(model.encode(name_y, y, corrected=False))
    x, y = torch.cat(views[0]), torch.cat(views[1])
    return (
        mean_reciprocal_rank(x, y, pessimistic=True),
        mean_reciprocal_rank(y, x, pessimistic=True),
    )


def validation_precision(model: DualEncoder, valid: PairFeatures, *, k: int = 50) -> float:
    """AP@k in %, the mean of `validation_precisions`."""
    return validation_precisions(model, valid, k=k).mean().item()


def validation_precisions(
    model: DualEncoder, valid: PairFeatures, *, k: int = 50, batch_size: int = 1024
) -> Tensor:
    """Precision (c,) in %: one query a class, the mean of the embedded y of its pairs, among all x.

    Of the pairs of a group, which share their x, the first counts. If no class has k of them, the
    largest class sets k.
    """
    if valid.classes is None:
        raise InputError(
            "The validation pairs have no labels, which select = 'classes' needs: pass label= to "
            "Pairs or read_table, or choose by 'both'."
        )
    name_x, name_y = model.modalities
    every = np.arange(len(valid))
    once = every if valid.groups is None else np.unique(valid.groups, return_index=True)[1]
    blocks = _blocks(model, valid, once, batch_size, lambda: None)
    items = torch.cat([model.encode(name_x, x, corrected=False) for x, _ in blocks])
    blocks = _blocks(model, valid, every, batch_size, lambda: None)
    queries = torch.cat([model.encode(name_y, y, corrected=False) for _, y in blocks])
    truth = valid.classes[once]
    k = reachable_k(truth, k)
    return class_precisions(queries, valid.classes, items, truth, k=k)


def mean_correlation(model: DualEncoder) -> float | None:
    """Mean canonical correlation of the stored projections; None without CCA."""
    if not isinstance(model.projection, CCALayer):
        return None
    return model.projection.correlations.mean().item()


@torch.no_grad()
def towers_diverged(model: DualEncoder, x: Tensor, y: Tensor) -> bool:
    """Whether finite inputs become NaN or infinite in the towers: not the data are to blame."""
    if not (torch.isfinite(x).all() and torch.isfinite(y).all()):
        return False
    was_training = model.training
    model.eval()
    try:
        views = model.tower_outputs(x, y)
    finally:
        model.train(was_training)
    return not all(bool(torch.isfinite(view).all()) for view in views)


def any_diverged(model: DualEncoder, pairs: Features, batch_size: int) -> bool:
    """The same for any of a whole set of pairs, batch by batch."""
    blocks = _blocks(model, pairs, np.arange(len(pairs)), batch_size, lambda: None)
    return any(towers_diverged(model, x, y) for x, y in blocks)


def _blocks(
    model: DualEncoder, features: Features, rows: Rows, size: int, each: Callable[[], None]
) -> Iterator[tuple[Tensor, Tensor]]:
    device = next(model.parameters()).device
    for start in range(0, len(rows), size):
        each()
        x, y = features.batch(rows[start : start + size])
        yield x.to(device, non_blocking=True), y.to(device, non_blocking=True)
