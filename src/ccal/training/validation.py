"""Validation: exact projections from all training pairs, and how well held-out pairs are found."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from ccal.cca import CCALayer
from ccal.errors import InputError
from ccal.evaluation import class_precisions, evenly_spaced, reachable_k
from ccal.model import DualEncoder
from ccal.ranks import counterpart_ranks, mean_reciprocal_ranks
from ccal.training.batches import Features, PairFeatures, RowNumbers, share


def _nothing() -> None:
    pass


def refit(
    model: DualEncoder,
    train: Features,
    batch_size: int,
    each: Callable[[], None] = _nothing,
    pairs: int | None = None,
) -> None:
    """Store CCA's projections of all training pairs, or of `pairs` evenly spread over them.

    Every rank passes over its share of them. `each` is called before every batch.
    """
    count = min(len(train), pairs or len(train))
    rows = np.arange(count) * len(train) // count
    model.refit(_blocks(model, train, share(rows), batch_size, each))


def embed(
    model: DualEncoder,
    pairs: Features,
    batch_size: int = 1024,
    each: Callable[[], None] = _nothing,
    at_most: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Embeddings (n, k) of both modalities, before any hub correction.

    Of more than `at_most` pairs evenly spaced ones are embedded.
    """
    name_x, name_y = model.modalities
    rows = evenly_spaced(len(pairs), at_most).numpy()
    parts = [
        (model.encode(name_x, x, corrected=False), model.encode(name_y, y, corrected=False))
        for x, y in _blocks(model, pairs, rows, batch_size, each)
    ]
    x, y = (torch.cat(view) for view in zip(*parts, strict=True))
    return x, y


def validation_mrr(
    model: DualEncoder, valid: Features, batch_size: int, each: Callable[[], None] = _nothing
) -> tuple[float, float]:
    """MRR of finding y from x, and x from y, among all validation pairs.

    Ties count against the counterpart: embeddings that collapse to one point must not be chosen.
    """
    return mean_reciprocal_ranks(*embed(model, valid, batch_size, each), pessimistic=True)


def reciprocal_ranks(x: Tensor, y: Tensor) -> Tensor:
    """1 / rank (n,) of pairs (n, k), the mean of both directions; ties count against them."""
    return torch.stack(counterpart_ranks(x, y, pessimistic=True)).double().reciprocal().mean(0)


def class_scores(
    model: DualEncoder, valid: PairFeatures, *, k: int = 50, batch_size: int = 1024
) -> Tensor:
    """Precision at k (c,) in % of each class; their mean is AP@k.

    The query of a class is the mean of the embedded y of its pairs; the candidates are all x. Pairs
    of one group share their x, which is a candidate once. If no class has k candidates, the largest
    class sets k.
    """
    if valid.classes is None:
        raise InputError(
            "The validation pairs have no labels, which select = 'classes' needs: pass label= to "
            "Pairs or read_table, or choose by 'both'."
        )
    name_x, name_y = model.modalities
    every = np.arange(len(valid))
    once = every if valid.groups is None else np.unique(valid.groups, return_index=True)[1]
    blocks = _blocks(model, valid, once, batch_size, _nothing)
    items = torch.cat([model.encode(name_x, x, corrected=False) for x, _ in blocks])
    blocks = _blocks(model, valid, every, batch_size, _nothing)
    queries = torch.cat([model.encode(name_y, y, corrected=False) for _, y in blocks])
    item_classes = valid.classes[once]
    k = reachable_k(item_classes, k)
    return class_precisions(queries, valid.classes, items, item_classes, k=k)


def clearly_better(one: Tensor, other: Tensor) -> bool:
    """Whether the mean of `one` (n,) exceeds that of `other` by more than its standard error.

    The best of many attempts on few pairs is often only the luckiest.

    >>> clearly_better(torch.tensor([0.9, 1.0, 0.8]), torch.tensor([0.5, 0.6, 0.5]))
    True
    """
    difference = one - other
    error = difference.std() / len(difference) ** 0.5 if len(difference) > 1 else 0.0
    return bool(difference.mean() > error)


def mean_correlation(model: DualEncoder) -> float | None:
    """Mean canonical correlation of the stored projections; None without CCA."""
    if not isinstance(model.projection, CCALayer):
        return None
    return model.projection.correlations.mean().item()


@torch.no_grad()
def towers_diverged(model: DualEncoder, x: Tensor, y: Tensor) -> bool:
    """Whether the towers turn finite inputs into NaN or infinity, so that training is to blame."""
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
    """`towers_diverged` for any batch of all pairs."""
    blocks = _blocks(model, pairs, np.arange(len(pairs)), batch_size, _nothing)
    return any(towers_diverged(model, x, y) for x, y in blocks)


def _blocks(
    model: DualEncoder, pairs: Features, rows: RowNumbers, size: int, each: Callable[[], None]
) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of the pairs of these rows, on the model's device."""
    device = next(model.parameters()).device
    for start in range(0, len(rows), size):
        each()
        x, y = pairs.batch(rows[start : start + size])
        yield x.to(device, non_blocking=True), y.to(device, non_blocking=True)
