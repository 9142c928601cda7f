"""From raw items to unit vectors: embedding in chunks, and the fingerprint of the model."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ccal.cca import CCALayer
from ccal.encoders import LinearTower, tower_config
from ccal.errors import InputError
from ccal.features import reads_images
from ccal.model import DualEncoder, Items
from ccal.ranks import unit_rows
from ccal.retrieval.backends.base import Vectors
from ccal.retrieval.items import Item

Progress = Callable[[int, int], None]

_CHUNK = 4096
# A network takes long for an image, so progress is reported after this many.
_IMAGES = 64
# Squared lengths beyond this and its inverse are computed anew, as they overflow or vanish.
_TINY = 1e-200


def fingerprint(model: DualEncoder) -> str:
    """SHA-256 of all that a model's embeddings depend on, as 64 hexadecimal digits.

    Covers the configuration, the front ends with their vocabularies, and every weight and buffer:
    towers, projections, the bank of the hub correction. A saved and loaded model keeps its
    fingerprint, on any device.

    >>> from ccal.encoders import DenseTower
    >>> model = DualEncoder(dim=2, projection="none", a=DenseTower(3, 2), b=DenseTower(3, 2))
    >>> before = fingerprint(model)
    >>> _ = model.towers["a"].apply(lambda m: [p.data.add_(1) for p in m.parameters()])
    >>> before == fingerprint(model), len(before)
    (False, 64)
    """
    if not isinstance(model, DualEncoder):
        raise InputError(f"model must be a DualEncoder, got a {type(model).__name__}.")
    config = {**model.config(tower=_tower), "order": list(model.modalities)}
    # They say how to read scores, and change no embedding.
    del config["calibrations"]
    digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode())
    for name, tensor in sorted(model.state_dict().items()):
        values = tensor.detach().cpu().contiguous()
        digest.update(json.dumps([name, str(values.dtype), list(values.shape)]).encode())
        digest.update(values.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def width(model: DualEncoder, dims: int | None) -> int:
    """Columns of the vectors of a model, cut to the leading `dims` if given.

    A model whose last dimensions do not matter least refuses `dims`.
    """
    whole = _whole(model)
    if dims is not None:
        # Linear towers start as linear CCA, and further training keeps its order.
        towers = all(isinstance(tower, LinearTower) for tower in model.towers.values())
        projection = model.projection
        canonical = isinstance(projection, CCALayer) and projection.coordinates == "canonical"
        if not (canonical or (projection is None and towers)):
            raise InputError(
                f"dims={dims} keeps the leading canonical dimensions, and this model has none: it "
                'must end in linear towers, or in a CCALayer with coordinates="canonical".'
            )
        if not 1 <= dims <= whole:
            raise InputError(f"dims must lie between 1 and the model's {whole}, got {dims}.")
    return (dims or whole) + (0 if model.hubs is None else 4)


def embed(
    model: DualEncoder,
    modality: str,
    items: Any,
    dims: int | None,
    batch_size: int = 1024,
    progress: Progress | None = None,
) -> Vectors:
    """Unit vectors (n, width) of raw items or features, cut to the leading `dims` if given."""
    if isinstance(items, np.ndarray):
        # Memory-mapped rows are read once, and torch wants to own its memory.
        items = np.array(items)
    embedded = model.encode(modality, items, batch_size=batch_size, progress=progress).cpu()
    if dims is not None:
        # The canonical part keeps its share of the length, so that the hub columns keep theirs.
        whole, hubs = embedded[:, : _whole(model)], embedded[:, _whole(model) :]
        part = whole[:, :dims]
        longer = whole.norm(dim=1, keepdim=True) / part.norm(dim=1, keepdim=True).clamp_min(1e-30)
        embedded = torch.cat((part * longer, hubs), dim=1)
    return unit_vectors(embedded, width(model, dims), f"the embedding of {modality}")


def embed_items(
    model: DualEncoder,
    dims: int | None,
    items: Sequence[Item],
    raw: Items | Callable[[Sequence[Item]], Items],
    batch_size: int,
    progress: Progress | None,
) -> Iterator[tuple[Sequence[Item], Vectors]]:
    """Items with their vectors, in chunks of one modality each.

    `raw` are the raw items, or a function that reads those of some items; `progress` is told how
    many are done.
    """
    start = 0
    while start < len(items):
        stop = min(start + _CHUNK, len(items))
        modality = items[start].modality
        while items[stop - 1].modality != modality:
            stop -= 1
        chunk = items[start:stop]
        content = raw(chunk) if callable(raw) else raw[start:stop]
        raw_images = reads_images(model.front_ends.get(modality))
        size = min(batch_size, _IMAGES) if raw_images else batch_size
        within = _within_chunk(progress, start, len(items))
        yield chunk, embed(model, modality, content, dims, size, within)
        start = stop
        if progress is not None:
            # Now the chunk is stored, too.
            progress(start, len(items))


def _within_chunk(progress: Progress | None, start: int, total: int) -> Progress | None:
    """Progress of a chunk, but for its end, as that of all items; `start` come before it."""
    if progress is None:
        return None
    return lambda done, of: progress(start + done, total) if done < of else None


def unit_vectors(vectors: Any, dim: int, name: str) -> Vectors:
    """Vectors (n, dim) or (dim,) as float32 rows of length 1; other widths, NaN and 0 are refused.

    >>> unit_vectors([[3.0, 4.0]], 2, "vectors")
    array([[0.6, 0.8]], dtype=float32)
    """
    if isinstance(vectors, Tensor):
        try:
            given = vectors.numpy()
        except (RuntimeError, TypeError):
            # On another device, with a gradient, or bfloat16, which NumPy lacks.
            given = vectors.detach().cpu().double().numpy()
    else:
        try:
            given = np.asarray(vectors)
        except ValueError as error:
            raise InputError(f"{name} must be rows of equal length.") from error
        if given.dtype.kind not in "fiu":
            raise InputError(f"{name} must be numbers, got {given.dtype}.")
    # In float64, so that a vector becomes the same row whatever its type.
    rows = np.array(given, np.float64, order="C", ndmin=2)
    if rows.ndim != 2 or rows.shape[1] != dim:
        raise InputError(
            f"{name} must have shape (n, {dim}), the width of this index, got {given.shape}."
        )
    squares = np.einsum("nd,nd->n", rows, rows)
    unit: Vectors
    if len(rows) and squares.min() > _TINY and squares.max() < 1 / _TINY:
        unit = (rows / np.sqrt(squares)[:, None]).astype(np.float32)
        return unit
    unit = unit_rows(torch.from_numpy(rows), name).float().numpy()
    zero = np.flatnonzero((unit == 0).all(1))
    if len(zero):
        raise InputError(
            f"{name} is zero in {len(zero)} of {len(unit)} rows, first in row {zero[0]} "
            "(counted from 0): a vector without direction has no cosine."
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


def _whole(model: DualEncoder) -> int:
    """Columns of embeddings without those of the hub correction."""
    return model.projection.k if isinstance(model.projection, CCALayer) else model.dim


def _tower(tower: nn.Module) -> dict[str, Any]:
    """The configuration of a tower; for one that cannot be saved, its structure."""
    try:
        return tower_config(tower)
    except InputError:
        return {"structure": repr(tower)}
