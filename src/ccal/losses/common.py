"""Shared by the losses: checks of their inputs, cosines, and the mask of false negatives."""

from typing import Any, Literal, get_args

import torch
from torch import Tensor

from ccal.cca.checks import check_pair
from ccal.cca.precision import full_precision, upcast, working_dtype
from ccal.errors import InputError
from ccal.ranks import inverse_norms

Direction = Literal["x->y", "y->x", "both"]
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)


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


class _Scores(torch.autograd.Function):
    """x @ y.T in full precision: autocast would reach the backward of a plain product."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(x, y)
        with full_precision(x):
            return x @ y.T

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x, y = ctx.saved_tensors
        with full_precision(x):
            return gradient @ y, gradient.T @ x


def cosines(x: Tensor, y: Tensor) -> Tensor:
    """(n, k), (n, k) -> (n, n): cosine of every row of x with every row of y, differentiable."""
    dtype = working_dtype(x, y)
    x, y = upcast(x, dtype), upcast(y, dtype)
    scores: Tensor = _Scores.apply(  # type: ignore[no-untyped-call]
        x * inverse_norms(x), y * inverse_norms(y)
    )
    return scores


def false_negatives(labels: Tensor) -> Tensor:
    """(n,) -> (n, n): True where two different pairs share a label."""
    return (labels[:, None] == labels).fill_diagonal_(False)
