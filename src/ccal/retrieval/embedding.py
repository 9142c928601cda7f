"""Raw items and vectors as rows of length 1, as every home keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccal.cca import CCALayer
from ccal.encoders import LinearTower
from ccal.errors import InputError
from ccal.model import DualEncoder
from ccal.ranks import unit_rows
from ccal.retrieval.home import Vectors

__all__ = ["as_batch", "embed", "unit_vectors", "width"]

_TINY = 1e-200


def width(model: DualEncoder, dims: int | None) -> int:
    """Columns of the vectors of a model that are cut to the leading `dims`, if given."""
    _check_dims(model, dims)
    return (dims or _whole(model)) + (0 if model.hubs is None else 4)


def embed(
    model: DualEncoder, modality: str, items: Any, dims: int | None, batch_size: int = 1024
) -> Vectors:
    """Unit vectors (n, width) of raw items or features, cut to the leading `dims` if given."""
    if isinstance(items, np.ndarray):
        # Memory-mapped rows are read once, and torch wants to own its memory.
        items = np.array(items)
    embedded = model.encode(modality, items, batch_size=batch_size).cpu()
    if dims is not None:
        embedded = _leading(embedded, model, dims)
    return unit_vectors(embedded, width(model, dims), f"the embedding of {modality}")


def unit_vectors(vectors: Any, dim: int, name: str) -> Vectors:
    """Vectors (n, dim) or (dim,) as float32 rows of length 1; other widths, NaN and 0 are refused.

    >>> unit_vectors([[3.0, 4.0]], 2, "vectors")
    array([[0.6, 0.8]], dtype=float32)
    """
    if isinstance(vectors, Tensor):
        try:
            given = vectors.numpy()
        except (RuntimeError, TypeError):
            # On another device, with a gradient, or bfloat16, which NumPy has not.
            given = vectors.detach().cpu().double().numpy()
    else:
        given = np.asarray(vectors)
        if given.dtype.kind not in "fiu":
            raise InputError(f"{name} must be numbers, got {given.dtype}.")
    # In float64, so that a vector becomes the same row in whatever form it comes.
    rows = np.array(given, np.float64, order="C", ndmin=2)
    if rows.ndim != 2 or rows.shape[1] != dim:
        raise InputError(
            f"{name} must have shape (n, {dim}), the width of this index, got {given.shape}."
        )
    squares = np.einsum("nd,nd->n", rows, rows)
    if not len(rows) or not (squares.min() > _TINY and squares.max() < 1 / _TINY):
        return _far_from_one(rows, name)
    unit: Vectors = (rows / np.sqrt(squares)[:, None]).astype(np.float32)
    return unit


def _far_from_one(rows: NDArray[np.float64], name: str) -> Vectors:
    """Unit rows where squares overflow or vanish, or there are NaN or rows of zeros to refuse."""
    unit: Vectors = unit_rows(torch.from_numpy(rows), name).float().numpy()
    zero = np.flatnonzero((unit == 0).all(1))
    if len(zero):
        raise InputError(
            f"{name} is zero in {len(zero)} of {len(unit)} rows, first in row {zero[0]} "
            "(counted from 0): what has no direction has no cosine."
        )
    return unit


def as_batch(query: Any) -> tuple[Any, bool]:
    """Items to encode, and whether they were given as a batch.

    A list, a tuple, or an array of at least two dimensions is a batch.

    >>> as_batch("a bird"), as_batch(["a bird", "a dog"])
    ((['a bird'], False), (['a bird', 'a dog'], True))
    """
    if isinstance(query, np.ndarray | Tensor):
        batch = query.ndim >= 2
        return (query if batch else query[None]), batch
    if isinstance(query, Sequence) and not isinstance(query, str | bytes):
        return list(query), True
    return [query], False


def _leading(embedded: Tensor, model: DualEncoder, dims: int) -> Tensor:
    """The first columns, made as long as all were, and what corrects for hubs as it is."""
    # The canonical part keeps its share of the length, so that the hub columns keep theirs.
    whole, hubs = embedded[:, : _whole(model)], embedded[:, _whole(model) :]
    part = whole[:, :dims]
    length = torch.linalg.vector_norm(part, dim=1, keepdim=True)
    longer = torch.linalg.vector_norm(whole, dim=1, keepdim=True) / length.clamp_min(1e-30)
    return torch.cat((part * longer, hubs), dim=1)


def _check_dims(model: DualEncoder, dims: int | None) -> None:
    """Only canonical dimensions come in an order in which the last ones matter least."""
    if dims is None:
        return
    # Linear towers start as linear CCA, whose order training on keeps.
    towers = all(isinstance(tower, LinearTower) for tower in model.towers.values())
    projection = model.projection
    canonical = isinstance(projection, CCALayer) and projection.coordinates == "canonical"
    if not (canonical or (projection is None and towers)):
        raise InputError(
            f"dims={dims} keeps the leading canonical dimensions, and this model has none: it must "
            'end in linear towers, or in a CCALayer with coordinates="canonical".'
        )
    if not 1 <= dims <= _whole(model):
        raise InputError(f"dims must lie between 1 and the model's {_whole(model)}, got {dims}.")


def _whole(model: DualEncoder) -> int:
    """Columns of embeddings without those that correct for hubs."""
    return model.projection.k if isinstance(model.projection, CCALayer) else model.dim
