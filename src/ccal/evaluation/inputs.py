"""Checks of the arrays that the evaluation is given."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccal.errors import InputError
from ccal.positives import Positives
from ccal.ranks import unit_rows

Array = Tensor | NDArray[Any]


def embeddings(view: Array, name: str) -> Tensor:
    """`view` as a finite real matrix (n, k) with n, k >= 1, in at least float32."""
    tensor = _tensor(view).detach()
    if tensor.ndim != 2 or 0 in tensor.shape:
        raise InputError(
            f"{name} must be a matrix of embeddings, one row an item and at least one row and one "
            f"column, got shape {tuple(tensor.shape)}."
        )
    if tensor.is_complex() or tensor.dtype == torch.bool:
        raise InputError(f"{name} must hold real numbers, got {tensor.dtype}.")
    bad = int((~torch.isfinite(tensor)).any(dim=1).sum())
    if bad:
        raise InputError(f"{name} has NaN or infinite values in {bad} of {len(tensor)} rows.")
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def _tensor(values: Array) -> Tensor:
    """`values` as a tensor; torch takes neither reversed nor foreign-endian arrays."""
    if isinstance(values, np.ndarray):
        values = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("="))
    return torch.as_tensor(values)


def unit_pair(x: Array, y: Array, names: tuple[str, str] = ("x", "y")) -> tuple[Tensor, Tensor]:
    """Rows of `x` (n, k) and `y` (m, k) scaled to length 1, in one dtype on one device."""
    a, b = embeddings(x, names[0]), embeddings(y, names[1])
    if a.shape[1] != b.shape[1]:
        raise InputError(
            f"{names[0]} and {names[1]} must lie in one space, but {names[0]} has {a.shape[1]} "
            f"columns and {names[1]} has {b.shape[1]}."
        )
    if a.device != b.device:
        raise InputError(
            f"{names[0]} is on {a.device} and {names[1]} on {b.device}; move them to one device."
        )
    dtype = torch.promote_types(a.dtype, b.dtype)
    return unit_rows(a.to(dtype), names[0]), unit_rows(b.to(dtype), names[1])


def positives_of(groups: Array | Positives | None, x: Tensor, y: Tensor) -> Positives:
    """Which rows of `x` and `y` belong together.

    `groups` (m,) names the row of `x` that each row of `y` belongs to; None means row by row.

    >>> positives_of(None, torch.eye(2), torch.eye(2)).links()
    (tensor([0, 1]), tensor([0, 1]))
    """
    n, m = len(x), len(y)
    if isinstance(groups, Positives):
        if groups.shape != (n, m):
            raise InputError(
                f"groups are of {groups.shape[0]} rows of x and {groups.shape[1]} of y, but x has "
                f"{n} and y has {m}."
            )
        return groups
    if groups is None:
        if n != m:
            raise InputError(
                f"x has {n} rows and y has {m}: without groups they must be pairs. Pass groups, "
                "the row of x that each row of y belongs to."
            )
        return Positives.one_to_one(n)
    rows = _integers(groups, m, "groups", "y").to(x.device)
    low, high = int(rows.min()), int(rows.max())
    if low < 0 or high >= n:
        raise InputError(
            f"groups must name rows of x, 0 to {n - 1}, but they run from {low} to {high}."
        )
    alone = (torch.bincount(rows, minlength=n) == 0).nonzero()[:, 0]
    if len(alone):
        raise InputError(
            f"{len(alone)} of {n} rows of x have no row of y (the first is row {int(alone[0])}); "
            "leave them out, or add their counterparts to y and groups."
        )
    return Positives(rows, torch.arange(m, device=rows.device))


def labels(values: Array, view: Tensor, name: str, of: str) -> Tensor:
    """`values` as (n,) int64 class labels of the n rows of `view`."""
    return _integers(values, len(view), name, of).to(view.device)


def _integers(values: Array, length: int, name: str, of: str) -> Tensor:
    tensor = _tensor(values)
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise InputError(f"{name} must be integers, got {tensor.dtype}.")
    if tensor.shape != (length,):
        raise InputError(
            f"{name} must have one entry for each of the {length} rows of {of}, "
            f"got shape {tuple(tensor.shape)}."
        )
    return tensor.long()
