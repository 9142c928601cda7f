"""`describe_dimensions`: the words and features behind each dimension of a model's space.

A loading is the correlation of a feature with the coordinate that the model gives to the same
items (a structure correlation). Unlike a weight of a tower it does not change with the scale of
the feature, is stable where features correlate with each other, and exists for every tower.
"""

from __future__ import annotations

from math import log, sqrt
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccal.evaluation.embedded import EmbeddedPairs, evenly_spaced
from ccal.features import FeatureUnion, TfidfVectoriser, WordSequences
from ccal.model import DualEncoder
from ccal.training.batches import PairFeatures
from ccal.training.scoring import embed

_PAIRS, _BATCH, _MOST = 10_000, 1024, 8


def describe_dimensions(
    model: DualEncoder, train: PairFeatures, held_out: EmbeddedPairs
) -> dict[str, Any]:
    """Correlations and the largest loadings of each dimension, as plain values.

    "features" says for each modality what its loadings name: "words", "numbers" (of features, from
    0) or None if they have none: pixels and positions in a text mean nothing by themselves.
    "dimensions" has an entry for each, in order: "correlation" of the two modalities on training
    pairs, "held_out" on other pairs, and "loadings" by modality, those at the "high" end and those
    at the "low" end, at most eight each, the largest first. Loadings that noise would reach are
    left out: below sqrt(2 ln(2 d) / n) for d features and n pairs.

    Args:
        train: features of the training pairs; of many, 10,000 evenly spaced ones.
        held_out: embeddings of other pairs.
    """
    rows = evenly_spaced(len(train), _PAIRS).numpy()
    seen = tuple(_standardised(view) for view in embed(model, train, at_most=_PAIRS))
    fresh = tuple(_standardised(view) for view in held_out.raw_pairs(_PAIRS))
    correlations, held = ((x * y).sum(0).tolist() for x, y in (seen, fresh))
    found: list[dict[str, Any]] = [
        {"dimension": number, "correlation": a, "held_out": b, "loadings": {}}
        for number, (a, b) in enumerate(zip(correlations, held, strict=True), start=1)
    ]
    kinds: dict[str, str | None] = {}
    for view, (name, shape) in enumerate(zip(model.modalities, train.shapes, strict=True)):
        names = _names(model.front_ends.get(name), shape)
        kinds[name] = None if names is None else "words" if isinstance(names, list) else "numbers"
        if names is None:
            continue
        loadings = _loadings(train, rows, view, seen[view])[: len(names)]
        least = sqrt(2 * log(2 * len(loadings)) / len(rows))
        for dimension, column in zip(found, loadings.T, strict=True):
            dimension["loadings"][name] = {
                "high": _largest(column, least, names),
                "low": _largest(-column, least, names, sign=-1),
            }
    return {"pairs": len(rows), "features": kinds, "dimensions": found}


def _names(front_end: object, shape: tuple[int, ...]) -> list[str] | range | None:
    """Words or numbers of the features of a row; None if they mean nothing one by one.

    Of a union that begins with words, the words.
    """
    if isinstance(front_end, TfidfVectoriser):
        return front_end.vocabulary
    if isinstance(front_end, FeatureUnion) and isinstance(front_end.parts[0], TfidfVectoriser):
        return front_end.parts[0].vocabulary
    return None if len(shape) > 1 or isinstance(front_end, WordSequences) else range(shape[0])


def _standardised(view: Tensor) -> NDArray[np.float64]:
    """Columns with mean 0 and length 1; columns without variance are 0."""
    centred = view.double() - view.double().mean(0)
    columns: NDArray[np.float64] = torch.nn.functional.normalize(centred, dim=0).cpu().numpy()
    return columns


def _loadings(
    train: PairFeatures, rows: NDArray[np.int64], view: int, coordinates: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Correlations (d, k) of features and coordinates, batch by batch."""
    shift: NDArray[np.float64] | float = 0.0
    products: Any = 0.0
    sums: Any = 0.0
    squares: Any = 0.0
    for start in range(0, len(rows), _BATCH):
        batch = train.batch(rows[start : start + _BATCH])[view].double().numpy()
        if start == 0:
            shift = batch.mean(0)
        batch = batch - shift
        products = products + batch.T @ coordinates[start : start + _BATCH]
        sums, squares = sums + batch.sum(0), squares + np.square(batch).sum(0)
    lengths = np.sqrt(np.maximum(squares - sums**2 / len(rows), 0))
    found: NDArray[np.float64] = products / np.maximum(lengths, 1e-12)[:, None]
    return found


def _largest(
    column: NDArray[np.float64], least: float, names: list[str] | range, sign: int = 1
) -> list[tuple[str | int, float]]:
    """Names and values of the largest entries, each at least `least`."""
    order = np.argsort(-column, kind="stable")[:_MOST].tolist()
    return [(names[at], round(sign * float(column[at]), 4)) for at in order if column[at] >= least]
