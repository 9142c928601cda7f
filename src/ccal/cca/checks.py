"""Checks of views and ridges: what was given, what was expected, what to do."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccal.bounds import Number, check
from ccal.errors import CcalError, InputError


def check_view(view: Tensor, name: str, dim: int | None = None) -> None:
    """Refuse a view that is not a floating (n, dim) matrix."""
    if not isinstance(view, Tensor):
        raise InputError(
            f"{name} must be a torch.Tensor, got {type(view).__name__}; call torch.as_tensor first."
        )
    if view.ndim != 2:
        raise InputError(
            f"{name} must be a matrix of shape (samples, features), got shape {tuple(view.shape)}."
        )
    if not view.is_floating_point():
        raise InputError(f"{name} must be floating point, got {view.dtype}; call .float() first.")
    if dim is not None and view.shape[1] != dim:
        raise InputError(
            f"{name} has {view.shape[1]} features, but {dim} were expected "
            f"(got shape {tuple(view.shape)})."
        )


def check_pair(x: Tensor, y: Tensor, dim_x: int | None = None, dim_y: int | None = None) -> None:
    """Refuse views that are not matrices of the same number of samples."""
    check_view(x, "x", dim_x)
    check_view(y, "y", dim_y)
    if len(x) != len(y):
        raise InputError(
            f"x and y must be pairs, one row each, but x has {len(x)} rows and y has {len(y)}."
        )


def check_finite(view: Tensor, name: str) -> None:
    """Refuse NaN and infinite values, naming the view and counting them."""
    bad = int((~torch.isfinite(view)).sum())
    if bad:
        rows = int((~torch.isfinite(view)).any(dim=1).sum())
        raise InputError(
            f"{name} contains {bad} NaN or infinite values in {rows} of {len(view)} rows; "
            "remove those samples, or lower the learning rate if a network produced them."
        )


def ridge_pair(ridge: float | Sequence[float]) -> tuple[float, float]:
    """The ridge of each view, from one number for both or a pair."""
    pair = tuple(ridge) if isinstance(ridge, tuple | list) else (ridge, ridge)
    if len(pair) != 2:
        raise InputError(f"ridge must be one number or a pair (x, y), got ridge={ridge!r}.")
    for value in pair:
        check("ridge", value, Number(at_least=0))
    return float(pair[0]), float(pair[1])


def refuse_recomputation() -> None:
    """Called in a forward that updates running statistics: a checkpoint would run it twice."""
    if not torch.compiler.is_compiling() and torch._C._current_graph_task_id() >= 0:
        raise CcalError(
            "CCALayer with momentum < 1 continues from the statistics of earlier batches, and "
            "computing a batch again would change them; leave the layer outside of checkpoint()."
        )


def refuse_second_derivative(name: str) -> None:
    """Called in a backward whose result has no gradient of its own."""
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        raise CcalError(
            f"{name} cannot be differentiated twice; "
            "call backward() or grad() without create_graph=True."
        )


def row_keys(name: str, values: Any, rows: int) -> NDArray[Any]:
    """One key (n,) for each of n rows, such as the number of its group."""
    keys = np.asarray(values.cpu() if isinstance(values, Tensor) else values)
    if keys.shape != (rows,):
        raise InputError(f"{name} must have one value a row, shape ({rows},), got {keys.shape}.")
    return keys
