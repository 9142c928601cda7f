"""What the losses share: checks at the door, the precision to compute in, unit vectors, masks."""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor

from ccal.cca.checks import check_pair
from ccal.cca.raising import raised
from ccal.errors import InputError

__all__ = [
    "DIRECTIONS",
    "Direction",
    "check_embeddings",
    "check_option",
    "cosines",
    "false_negatives",
    "inverse_norms",
    "working_dtype",
]

Direction = Literal["x->y", "y->x", "both"]
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)

EPS = 1e-12
"""Vectors shorter than this have no direction: cosine 0 with everything, gradient 0."""


def check_option(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Refuse a value that is not one of the allowed ones."""
    if value not in allowed:
        raise InputError(
            f"{name} must be one of {', '.join(map(repr, allowed))}, got {name}={value!r}."
        )


def check_embeddings(x: Tensor, y: Tensor, labels: Tensor | None) -> None:
    """Refuse embeddings that are not pairs in one space, and labels that do not fit them."""
    check_pair(x, y)
    if x.shape != y.shape:
        raise InputError(
            f"x and y must have the same number of dimensions to be compared by cosine, "
            f"got shapes {tuple(x.shape)} and {tuple(y.shape)}; project them to one space first."
        )
    if x.numel() == 0:
        raise InputError(
            f"x and y are empty: got shape {tuple(x.shape)}, expected at least (1, 1)."
        )
    if labels is None:
        return
    if not isinstance(labels, Tensor):
        raise InputError(
            f"labels must be a torch.Tensor, got {type(labels).__name__}; call torch.as_tensor."
        )
    if labels.shape != (len(x),):
        raise InputError(
            f"labels must hold one label a pair, shape ({len(x)},), got {tuple(labels.shape)}."
        )
    if labels.is_floating_point() or labels.is_complex():
        raise InputError(f"labels must be integers, got {labels.dtype}; call .long() first.")


def working_dtype(x: Tensor, y: Tensor) -> torch.dtype:
    """float64 if either view has it, else float32: half cannot hold a sum over a batch."""
    return torch.promote_types(torch.promote_types(x.dtype, y.dtype), torch.float32)


def inverse_norms(x: Tensor) -> Tensor:
    """(n, k) -> (n, 1): one over the length of each row, 0 for a row without direction.

    A length beyond the range of the dtype gives NaN: cosines of 0 would hide that a model diverged.
    """
    norms = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    return torch.div(norms > EPS, norms.clamp_min(EPS)).add_(norms, alpha=0)


class _Scores(torch.autograd.Function):
    """x @ y.T in full precision: the backward of a plain product obeys an autocast around it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(x, y)
        with torch.autocast(x.device.type, enabled=False):
            return x @ y.T

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x, y = ctx.saved_tensors
        with torch.autocast(x.device.type, enabled=False):
            return gradient @ y, gradient.T @ x


def cosines(x: Tensor, y: Tensor) -> Tensor:
    """(n, k), (n, k) -> (n, n): cosine of every row of x with every row of y, differentiable."""
    dtype = working_dtype(x, y)
    x, y = raised(x, dtype), raised(y, dtype)
    scores: Tensor = _Scores.apply(  # type: ignore[no-untyped-call]
        x * inverse_norms(x), y * inverse_norms(y)
    )
    return scores


def false_negatives(labels: Tensor) -> Tensor:
    """(n,) -> (n, n): True where two different pairs share a label."""
    return (labels[:, None] == labels).fill_diagonal_(False)
