"""Samples projected with a stored mean and projection, one view at a time.

It all happens in float64: a projection of features that nearly repeat multiplies rounding errors
of samples, mean and projection alike, and the product is small beside what the networks do.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ccal.cca.checks import check_finite
from ccal.errors import NotFittedError

__all__ = ["project"]


def _checked(view: Tensor, mean: Tensor, projection: Tensor, fitted: Tensor, name: str) -> Tensor:
    if not fitted:
        raise NotFittedError(
            f"{name} cannot be projected: the layer has no projections yet. Call refit(pairs), or "
            "run a batch in training mode, or load a state_dict."
        )
    check_finite(view, name)
    with torch.autocast(view.device.type, enabled=False):
        projected = (view.double() - mean) @ projection
    return projected.to(torch.promote_types(view.dtype, torch.float32))


# torch.compile takes an operator as it is; it could not trace checks of the data.
_operator = torch.library.custom_op(
    "ccal::project",
    _checked,
    mutates_args=(),
    schema="(Tensor view, Tensor mean, Tensor projection, Tensor fitted, str name) -> Tensor",
)


@_operator.register_fake
def _(view: Tensor, mean: Tensor, projection: Tensor, fitted: Tensor, name: str) -> Tensor:
    dtype = torch.promote_types(view.dtype, torch.float32)
    return view.new_empty(view.shape[0], projection.shape[1], dtype=dtype)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    view, _, projection, _, _ = inputs
    ctx.dtype = view.dtype
    ctx.save_for_backward(projection)


def _gradient(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    (projection,) = ctx.saved_tensors
    return (grad.double() @ projection.mT).to(ctx.dtype), None, None, None, None


_operator.register_autograd(_gradient, setup_context=_setup_context)


def project(view: Tensor, mean: Tensor, projection: Tensor, fitted: Tensor, name: str) -> Tensor:
    """(view - mean) @ projection in the dtype of the view, at least float32: (n, d) -> (n, k).

    Refuses values that are not finite and, if `fitted` is 0, any.

    >>> view, one = torch.tensor([[3.0, 5.0]]), torch.ones(())
    >>> project(view, torch.ones(2).double(), torch.eye(2).double(), one, "x")
    tensor([[2., 4.]])
    """
    if torch.compiler.is_compiling():
        found: Tensor = _operator(view, mean, projection, fitted, name)
        return found
    if torch.is_grad_enabled() and view.requires_grad:
        # The layer may be fitted again before the backward.
        projection = projection.clone()
    return _checked(view, mean, projection, fitted, name)
