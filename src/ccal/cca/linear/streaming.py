"""Moments of two views in one pass, without ever holding a view in memory."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccal.cca.linear.views import Float64, View, chunk_size
from ccal.cca.statistics import Moments
from ccal.errors import InputError

__all__ = ["stream"]


def stream(
    x: View,
    y: View,
    held_out: Sequence[NDArray[np.int64]] = (),
    *,
    chunk_rows: int | None = None,
    verbose: bool = False,
) -> tuple[Moments, list[tuple[Tensor, Tensor]]]:
    """Read both views once, `chunk_rows` rows at a time.

    Returns the moments of all rows that are in none of the sets of rows `held_out`, and the
    samples of each of those sets, (h, d_x) and (h, d_y).

    >>> from ccal.cca.linear.views import open_pair
    >>> X = np.arange(8.0).reshape(4, 2)
    >>> moments, [(held_x, held_y)] = stream(*open_pair(X, X), [np.array([3])])
    >>> moments.count, held_x
    (3, tensor([[6., 7.]], dtype=torch.float64))
    """
    size = chunk_rows or chunk_size(x.dim + y.dim)
    buffer = np.empty((min(size, x.rows), x.dim + y.dim))
    held = np.sort(np.concatenate([np.empty(0, np.int64), *held_out]))
    samples = np.empty((len(held), x.dim + y.dim))
    total: Moments | None = None
    start = time.monotonic()
    for rows in x.chunks(size):
        z = buffer[: rows.stop - rows.start]
        x.read(rows, out=z[:, : x.dim])
        y.read(rows, out=z[:, x.dim :])
        first, last = np.searchsorted(held, (rows.start, rows.stop))
        if last > first:
            inside = held[first:last] - rows.start
            samples[first:last] = z[inside]
            z = np.delete(z, inside, axis=0)
        if len(z):
            moments = _moments_in_place(z, x, y)
            total = moments if total is None else total + moments
        if verbose:
            _report(rows.stop, x.rows, time.monotonic() - start)
    if total is None:
        raise InputError(f"CCA needs pairs to learn from, got {x.rows} rows.")
    _refuse(samples.sum(axis=0), x, y)
    folds = [torch.from_numpy(samples[np.searchsorted(held, rows)]) for rows in held_out]
    return total, [(fold[:, : x.dim], fold[:, x.dim :]) for fold in folds]


def _moments_in_place(z: Float64, x: View, y: View) -> Moments:
    """Moments of the rows `z` = [x, y], which are centred on the way."""
    d = x.dim
    with np.errstate(invalid="ignore", over="ignore"):
        mean = z.mean(axis=0)
        z -= mean
        # One product of a matrix with its own transpose gives all three blocks, and NumPy computes
        # only half of it (syrk): half the work of three separate products of torch.
        products = z.T @ z
    _refuse(products.diagonal(), x, y)
    p, m = torch.from_numpy(products), torch.from_numpy(mean)
    return Moments(len(z), m[:d], m[d:], p[:d, :d], p[d:, d:], p[:d, d:])


def _refuse(totals: Float64, x: View, y: View) -> None:
    """Blame a view for those of its features (d_x + d_y,) whose total is not finite."""
    if not np.isfinite(totals).all():
        (y if np.isfinite(totals[: x.dim]).all() else x).refuse_values()


def _report(done: int, total: int, seconds: float) -> None:
    """One line on stderr, rewritten as the work goes on."""
    rate = done / max(seconds, 1e-9)
    end = "\n" if done == total else ""
    print(
        f"\rCCA: {done:,} of {total:,} samples, {rate:,.0f}/s, {(total - done) / rate:.0f} s left ",
        end=end,
        file=sys.stderr,
        flush=True,
    )
