"""Products with the matrix that says which hinges are active."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["indicator_products"]


def indicator_products(
    hits: Tensor, total: Tensor, top: int, x: Tensor | None, y: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    """`hits @ y` and `hits.T @ x` for a (b, n) matrix of the integers 0..top that sum to `total`.

    Either factor may be None, and then so is its product.

    In training most hinges are active at first and few later on, so the matrix or its complement
    is nearly empty. Then adding up the listed rows beats the dense product several times.

    >>> hits = torch.tensor([[0.0, 1.0], [0.0, 2.0]])
    >>> indicator_products(hits, hits.sum(), 2, None, torch.tensor([[1.0], [10.0]]))
    (tensor([[10.],
            [20.]]), None)
    """
    factor = y if x is None else x
    if factor is None:
        return None, None
    usual = _usual(hits, total, top, factor.shape[1])
    if usual is None:
        return None if y is None else hits @ y, None if x is None else hits.T @ x
    # numpy finds and sorts the others several times faster than torch does, and bytes soonest.
    flat = hits.to(torch.int8).numpy().reshape(-1)
    places = _unlike(flat, usual).astype(np.int32)
    rows = places // np.int32(hits.shape[1])
    columns = places - rows * np.int32(hits.shape[1])
    values = np.abs(flat[places] - usual) if top > 1 else None
    to_x = to_y = None
    if y is not None:
        to_x = _sum_rows(y, columns, values, np.bincount(rows, minlength=len(hits)))
        if usual:
            to_x = usual * y.sum(0) - to_x
    if x is not None:
        # Of 16 bits or less, numpy sorts by radix.
        order = np.argsort(columns.astype(np.min_scalar_type(hits.shape[1])), kind="stable")
        values = None if values is None else values[order]
        to_y = _sum_rows(x, rows[order], values, np.bincount(columns, minlength=hits.shape[1]))
        if usual:
            to_y = usual * x.sum(0) - to_y
    return to_x, to_y


def _usual(hits: Tensor, total: Tensor, top: int, dim: int) -> int | None:
    """0 or `top`, if so many entries are that listing the others pays, else None."""
    # Only here do the sums have a fast kernel; and narrow products are too cheap to avoid.
    if hits.device.type != "cpu" or hits.dtype != torch.float32 or dim < 64:
        return None
    active, entries = total.item(), hits.numel()
    listed = min(active, top * entries - active)
    # Measured on two AVX2 cores: an entry costs what 1000 + 3 dim dense multiply-adds do.
    if listed * (1000 + 3 * dim) >= entries * dim:
        return None
    return 0 if listed == active else top


def _unlike(values: npt.NDArray[np.int8], usual: int) -> npt.NDArray[np.intp]:
    """Places of the few values that differ from the usual one, found in words of eight."""
    if len(values) % 8:
        return np.flatnonzero(values != usual)
    words = values.view(np.uint64)
    holding = np.flatnonzero(words != np.uint64(usual * 0x0101010101010101))
    found = np.flatnonzero(words[holding].view(np.int8) != usual)
    places: npt.NDArray[np.intp] = (holding[found >> 3] << 3) + (found & 7)
    return places


def _sum_rows(
    source: Tensor,
    members: npt.NDArray[np.int32],
    weights: npt.NDArray[np.int8] | None,
    counts: npt.NDArray[np.intp],
) -> Tensor:
    """Row i is the (weighted) sum of the next counts[i] rows of source that are members."""
    starts = np.cumsum(counts) - counts
    return functional.embedding_bag(
        torch.from_numpy(members),
        source,
        torch.from_numpy(starts.astype(np.int32)),
        mode="sum",
        per_sample_weights=None if weights is None else torch.from_numpy(weights).to(source.dtype),
    )
