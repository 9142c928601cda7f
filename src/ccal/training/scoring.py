"""How well a model finds pairs: raw items for `evaluate`, features for validation in training."""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from ccal.data import Pairs
from ccal.errors import InputError
from ccal.evaluation import (
    EmbeddedPairs,
    Report,
    Ties,
    class_precisions,
    evenly_spaced,
    reachable_k,
)
from ccal.model import DualEncoder, Items
from ccal.numbering import numbered
from ccal.positives import Positives
from ccal.ranks import counterpart_ranks
from ccal.training.batches import Features, PairFeatures, RowNumbers


def evaluate(
    model: DualEncoder,
    pairs: Pairs,
    *,
    ties: Ties = "pessimistic",
    bootstrap: int = 1000,
    seed: int = 0,
) -> Report:
    """How well the two modalities of `pairs` find each other, in both directions.

    Every item is a query and a candidate once, such as the picture of five captions. The right
    answers to a query are the items that it is paired with and all items of its group (the VSE
    protocol). Equal scores count against the right answer, as in validation.

    >>> from ccal.encoders import LinearTower
    >>> same = LinearTower(4, 4)
    >>> same.initialise(np.zeros(4), np.eye(4))
    >>> model = DualEncoder(dim=4, projection="none", left=same, right=same)
    >>> rows = np.random.default_rng(0).normal(size=(50, 4))
    >>> evaluate(model, Pairs({"left": rows, "right": rows})).x_to_y.measures.mrr
    100.0
    """
    return embed_pairs(model, pairs).evaluate(ties=ties, bootstrap=bootstrap, seed=seed)


def embed_pairs(
    model: DualEncoder, pairs: Pairs, *, candidates: Callable[[Items], Tensor] | None = None
) -> EmbeddedPairs:
    """Embed every item of `pairs` once, for all that is to be measured and shown.

    `candidates` embeds all x together, for classes to look for; by default a model with
    `neighbours` does so, and any other embeds each by itself.
    """
    if pairs.names != model.modalities:
        raise InputError(
            f"The model joins {' and '.join(model.modalities)}, "
            f"the pairs are of {' and '.join(pairs.names)}."
        )
    if len(pairs) == 0:
        raise InputError("There are no pairs to evaluate.")
    x_items, y_items = map(pairs.items, pairs.names)
    positives, *firsts = Positives.of_items(x_items, y_items, pairs.group)
    raw, final = [], []
    averaged, neighbours = None, model.neighbours
    if candidates is None and neighbours is not None:
        candidates = model.candidates
    for name, first in zip(pairs.names, firsts, strict=True):
        column = pairs.column(name)
        items: Items = column if len(first) == len(pairs) else column.select(first)
        if candidates is not None and name == pairs.names[0]:
            # Made once: the features of raw images take long.
            items = model.features(name, items[:])
            averaged = candidates(items)
        raw.append(model.encode(name, items, corrected=False))
        final.append(model.correct(name, raw[-1]))
    labels, classes = (None, []) if pairs.label is None else labels_of(pairs)
    corrected_classes = None
    if labels is not None and model.hubs is not None:
        corrected_classes, _ = model.hubs.correct_classes(raw[1][positives.y_rows], labels)
    return EmbeddedPairs(
        pairs.names,
        final[0],
        final[1],
        positives.x_rows,
        positives.y_rows,
        raw=(raw[0], raw[1]),
        labels=labels,
        classes=tuple(classes),
        groups=positives.groups,
        averaged=averaged,
        neighbours=1 if neighbours is None else neighbours.count,
        corrected_classes=corrected_classes,
    )


def labels_of(pairs: Pairs) -> tuple[Tensor, list[str]]:
    """The class of each pair as a number (n,), and the names of the classes."""
    if pairs.label is None:
        raise InputError("The pairs have no labels, so there are no classes to find; pass label=.")
    names, numbers = np.unique(pairs.label, return_inverse=True)
    return torch.from_numpy(numbers), [str(name) for name in names]


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


def embed_items(
    model: DualEncoder,
    pairs: Features,
    firsts: tuple[RowNumbers, RowNumbers],
    batch_size: int = 1024,
    each: Callable[[], None] | None = None,
) -> tuple[Tensor, Tensor]:
    """Embeddings of each different item once, before any hub correction.

    `firsts` are the first pairs of each x and of each y, as `relation` gives them.
    """
    x_first, y_first = firsts
    if len(x_first) == len(y_first) == len(pairs):
        return embed(model, pairs, batch_size, each)
    name_x, name_y = model.modalities
    of_x = blocks(model, pairs, x_first, batch_size, each)
    of_y = blocks(model, pairs, y_first, batch_size, each)
    x = torch.cat([model.encode(name_x, x, corrected=False) for x, _ in of_x])
    y = torch.cat([model.encode(name_y, y, corrected=False) for _, y in of_y])
    return x, y


def reciprocal_ranks(x: Tensor, y: Tensor, positives: Positives) -> Tensor:
    """How well x (n, k) and y (m, k) find each other, by units: their mean is that of both MRR.

    Queries that share a counterpart are one unit, since they succeed or fail together; a pair that
    shares nothing has the mean of its two 1 / rank. Ties count against them.
    """
    units = positives.units()
    count = int(units[0].max()) + 1
    total = torch.zeros(count, dtype=torch.float64)
    both = counterpart_ranks(x, y, positives=positives, pessimistic=True)
    for ranks, unit in zip(both, units, strict=True):
        values = ranks.cpu().double().reciprocal() * (count / len(unit))
        total.index_add_(0, torch.from_numpy(unit), values)
    return total / 2


def class_scores(model: DualEncoder, valid: PairFeatures, *, k: int = 50) -> Tensor:
    """Precision at k (c,) of each class, from 0 to 1; their mean is AP@k.

    The query of a class is the mean of the embedded y of its pairs; the candidates are all
    different x. If no class has k candidates, the largest class sets k.
    """
    if valid.classes is None:
        raise InputError(
            "The validation pairs have no labels, which select = 'classes' needs: pass label= to "
            "Pairs or read_table, or choose by 'both'."
        )
    name_x, name_y = model.modalities
    every = np.arange(len(valid))
    once = numbered(valid.items[0])[0]
    candidates, queries = blocks(model, valid, once), blocks(model, valid, every)
    x = torch.cat([model.encode(name_x, x, corrected=False) for x, _ in candidates])
    y = torch.cat([model.encode(name_y, y, corrected=False) for _, y in queries])
    x_classes = valid.classes[once]
    return class_precisions(y, valid.classes, x, x_classes, k=reachable_k(x_classes, k)) / 100


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
