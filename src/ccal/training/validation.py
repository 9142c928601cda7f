"""Validation: how well held-out pairs are found, and whether training went astray."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from ccal.errors import InputError
from ccal.evaluation import class_precisions, evenly_spaced, reachable_k
from ccal.model import DualEncoder
from ccal.ranks import counterpart_ranks
from ccal.training.batches import Features, PairFeatures, RowNumbers


def embed(
    model: DualEncoder,
    pairs: Features,
    batch_size: int = 1024,
    each: Callable[[], None] | None = None,
    at_most: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Embeddings (n, k) of both modalities, before any hub correction.

    Of more than `at_most` pairs evenly spaced ones are embedded. `each` is called before a batch.
    """
    name_x, name_y = model.modalities
    rows = evenly_spaced(len(pairs), at_most).numpy()
    parts = [
        (model.encode(name_x, x, corrected=False), model.encode(name_y, y, corrected=False))
        for x, y in blocks(model, pairs, rows, batch_size, each)
    ]
    x, y = (torch.cat(view) for view in zip(*parts, strict=True))
    return x, y


def reciprocal_ranks(x: Tensor, y: Tensor) -> Tensor:
    """1 / rank (n,) of pairs (n, k), the mean of both directions; ties count against them."""
    return torch.stack(counterpart_ranks(x, y, pessimistic=True)).double().reciprocal().mean(0)


def class_scores(model: DualEncoder, valid: PairFeatures, *, k: int = 50) -> Tensor:
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
    candidates, queries = blocks(model, valid, once), blocks(model, valid, every)
    x = torch.cat([model.encode(name_x, x, corrected=False) for x, _ in candidates])
    y = torch.cat([model.encode(name_y, y, corrected=False) for _, y in queries])
    x_classes = valid.classes[once]
    return class_precisions(y, valid.classes, x, x_classes, k=reachable_k(x_classes, k))


def clearly_better(one: Tensor, other: Tensor) -> bool:
    """Whether the mean of `one` (n,) exceeds that of `other` by more than its standard error.

    The best of many attempts on few pairs is often only the luckiest.

    >>> clearly_better(torch.tensor([0.9, 1.0, 0.8]), torch.tensor([0.5, 0.6, 0.5]))
    True
    """
    difference = one - other
    error = difference.std() / len(difference) ** 0.5 if len(difference) > 1 else 0.0
    return bool(difference.mean() > error)


@torch.no_grad()
def towers_diverged(model: DualEncoder, x: Tensor, y: Tensor) -> bool:
    """Whether the towers turn finite inputs into NaN or infinity, so that training is to blame.

    The model is in evaluation mode afterwards.
    """
    if not (torch.isfinite(x).all() and torch.isfinite(y).all()):
        return False
    views = model.eval().tower_outputs(x, y)
    return not all(bool(torch.isfinite(view).all()) for view in views)


def any_diverged(model: DualEncoder, pairs: Features, batch_size: int) -> bool:
    """`towers_diverged` for any batch of all pairs."""
    every = blocks(model, pairs, np.arange(len(pairs)), batch_size)
    return any(towers_diverged(model, x, y) for x, y in every)


def blocks(
    model: DualEncoder,
    pairs: Features,
    rows: RowNumbers,
    size: int = 1024,
    each: Callable[[], None] | None = None,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of the pairs of these rows, on the model's device."""
    device = next(model.parameters()).device
    for start in range(0, len(rows), size):
        if each is not None:
            each()
        x, y = pairs.batch(rows[start : start + size])
        yield x.to(device, non_blocking=True), y.to(device, non_blocking=True)
