"""Checks at the door of the mathematics: what was given, what was expected, what to do."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite

import numpy as np
import torch
from torch import Tensor

from ccal.errors import CcalError, InputError

__all__ = [
    "check_finite",
    "check_number",
    "check_pair",
    "check_view",
    "refuse_recomputation",
    "refuse_second_derivative",
    "ridge_pair",
]


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


def check_number(
    name: str, value: object, *, at_least: float = -inf, above: float = -inf, at_most: float = inf
) -> None:
    """Refuse what is not a finite number within the bounds."""
    number = isinstance(value, float | int | np.floating | np.integer) and isfinite(value)
    if number and at_least <= value <= at_most and value > above:  # type: ignore[operator]
        return
    bounds = {"of at least": at_least, "greater than": above, "of at most": at_most}
    wanted = " and ".join(f"{words} {b:g}" for words, b in bounds.items() if isfinite(b))
    raise InputError(
        f"{name} must be a finite number {wanted}".rstrip() + f", got {name}={value!r}."
    )


def ridge_pair(ridge: float | Sequence[float]) -> tuple[float, float]:
    """The ridge of each view, from one number for both or a pair."""
    pair = tuple(ridge) if isinstance(ridge, Sequence) else (ridge, ridge)
    if len(pair) != 2 or not all(
        isinstance(r, float | int | np.floating | np.integer) and 0 <= r < inf for r in pair
    ):
        raise InputError(
            f"ridge must be non-negative and finite, one number or a pair (x, y), got {ridge!r}."
        )
    return float(pair[0]), float(pair[1])


def refuse_recomputation() -> None:
    """Called in a forward that changes what it starts from: checkpoints run it again."""
    if not torch.compiler.is_compiling() and torch._C._current_graph_task_id() >= 0:
        raise CcalError(
            "CCALayer with momentum < 1 goes on from the statistics of former batches, which "
            "computing a batch again would change; leave the layer outside of checkpoint()."
        )


def refuse_second_derivative(name: str) -> None:
    """Called in a backward: a gradient that is used further must not lose its own gradient."""
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        raise CcalError(
            f"{name} cannot be differentiated twice; "
            "call backward() or grad() without create_graph=True."
        )
