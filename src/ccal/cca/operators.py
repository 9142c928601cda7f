"""Differentiable steps of the layer, in eager mode and under torch.compile.

`batch_cca` projects a batch by its own CCA, `project` one view by a stored projection. Both make
choices and checks that depend on the data, which torch.compile cannot trace. So there they are
custom operators that it does not look into; in eager mode plain functions cost less.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ccal.cca.batch import BatchCCA, BatchSettings, Facts, backward_pass, forward_pass
from ccal.cca.checks import check_finite, refuse_second_derivative
from ccal.cca.precision import full_precision, upcast, working_dtype
from ccal.errors import NotFittedError


def batch_cca(
    x: Tensor, y: Tensor, settings: BatchSettings, running: Sequence[Tensor] = ()
) -> BatchCCA:
    """Project a batch by its own square A and B, with gradients through their computation.

    `x` (m, d_x) and `y` (m, d_y) are checked pairs; half precision is upcast to float32.
    `running` is empty, or holds the statistics to be averaged with those of the batch: mean_x,
    mean_y, xx, yy, xy and the number of batches in them.
    """
    dtype = working_dtype(x, y)
    x, y = upcast(x, dtype), upcast(y, dtype)
    if torch.compiler.is_compiling():
        *found, _ = _batch_operator(x, y, list(running), list(map(float, settings)))
        return BatchCCA(*found[:3], *(constant.detach() for constant in found[3:]))
    return BatchCCA(*_Eager.apply(x, y, list(running), settings))  # type: ignore[no-untyped-call]


class _Eager(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor, running: list[Tensor], settings: BatchSettings
    ) -> tuple[Tensor, ...]:
        with full_precision(x):
            found, ctx.facts = forward_pass(x, y, running, settings)
        ctx.settings = settings
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*found[3:])
        ctx.save_for_backward(x, y, *found)
        return tuple(found)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        refuse_second_derivative("CCA of a batch")
        x, y, *fields = ctx.saved_tensors
        forward, (grad_x, grad_y, grad_d) = BatchCCA(*fields), grads[:3]
        grad_x = torch.zeros_like(forward.x) if grad_x is None else grad_x
        grad_y = torch.zeros_like(forward.y) if grad_y is None else grad_y
        with full_precision(x):
            found = backward_pass((grad_x, grad_y, grad_d), x, y, forward, ctx.facts, ctx.settings)
        return *found, None, None


@torch.library.custom_op("ccal::batch_cca", mutates_args=())
def _batch_operator(
    x: Tensor, y: Tensor, running: list[Tensor], settings: list[float]
) -> list[Tensor]:
    with full_precision(x):
        found, facts = forward_pass(x, y, running, BatchSettings(*settings))
    # An operator returns tensors alone, of dtypes that do not depend on the data.
    constants = (constant.double().contiguous() for constant in found[2:])
    facts_tensor = torch.tensor(facts, dtype=torch.float64)
    return [found.x.contiguous(), found.y.contiguous(), *constants, facts_tensor]


@_batch_operator.register_fake
def _(x: Tensor, y: Tensor, running: list[Tensor], settings: list[float]) -> list[Tensor]:
    dx, dy, nothing = x.shape[1], y.shape[1], (0,)
    means, squares = [(dx,), (dy,)], [(dx, dx), (dy, dy)]
    shapes = [
        *((min(dx, dy),), *squares, *means),
        (dx, dx) if BatchSettings(*settings).aligned else nothing,
        *((*means, *squares, (dx, dy)) if running else [nothing] * 5),
    ]
    constants = (x.new_empty(shape, dtype=torch.float64) for shape in shapes)
    facts = torch.empty(len(Facts._fields), dtype=torch.float64, device="cpu")
    return [x.new_empty(x.shape), y.new_empty(y.shape), *constants, facts]


@torch.library.custom_op("ccal::batch_cca_backward", mutates_args=())
def _backward_operator(
    grads: list[Tensor], saved: list[Tensor], settings: list[float]
) -> list[Tensor]:
    (grad_x, grad_y, grad_d), (x, y, *fields, numbers) = grads, saved
    forward, facts = BatchCCA(*fields), Facts(*numbers.tolist())
    with full_precision(x):
        s = BatchSettings(*settings)
        return list(backward_pass((grad_x, grad_y, grad_d), x, y, forward, facts, s))


@_backward_operator.register_fake
def _(grads: list[Tensor], saved: list[Tensor], settings: list[float]) -> list[Tensor]:
    return [view.new_empty(view.shape) for view in saved[:2]]


def _save_batch(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    x, y, running, ctx.settings = inputs
    ctx.no_gradient = [None] * len(running)
    ctx.save_for_backward(x, y, *output)


def _batch_gradient(ctx: Any, grads: list[Tensor]) -> tuple[Tensor, Tensor, list[None], None]:
    grad_x, grad_y = _backward_operator(grads[:3], list(ctx.saved_tensors), ctx.settings)
    return grad_x, grad_y, ctx.no_gradient, None


_batch_operator.register_autograd(_batch_gradient, setup_context=_save_batch)


def _checked(view: Tensor, mean: Tensor, projection: Tensor, fitted: Tensor, name: str) -> Tensor:
    if not fitted:
        raise NotFittedError(
            f"{name} cannot be projected: the layer has no projections yet. Call refit(pairs), or "
            "run a batch in training mode, or load a state_dict."
        )
    check_finite(view, name)
    # A projection of features that nearly repeat multiplies rounding errors, so all is float64.
    with full_precision(view):
        projected = (view.double() - mean) @ projection
    return projected.to(torch.promote_types(view.dtype, torch.float32))


_project_operator = torch.library.custom_op(
    "ccal::project",
    _checked,
    mutates_args=(),
    schema="(Tensor view, Tensor mean, Tensor projection, Tensor fitted, str name) -> Tensor",
)


@_project_operator.register_fake
def _(view: Tensor, mean: Tensor, projection: Tensor, fitted: Tensor, name: str) -> Tensor:
    dtype = torch.promote_types(view.dtype, torch.float32)
    return view.new_empty(view.shape[0], projection.shape[1], dtype=dtype)


def _save_projection(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    view, _, projection, _, _ = inputs
    ctx.dtype = view.dtype
    ctx.save_for_backward(projection)


def _project_gradient(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    (projection,) = ctx.saved_tensors
    return (grad.double() @ projection.mT).to(ctx.dtype), None, None, None, None


_project_operator.register_autograd(_project_gradient, setup_context=_save_projection)


def project(view: Tensor, mean: Tensor, projection: Tensor, fitted: Tensor, name: str) -> Tensor:
    """(view - mean) @ projection in the dtype of the view, at least float32: (n, d) -> (n, k).

    Refuses values that are not finite, and everything if `fitted` is 0.

    >>> view, one = torch.tensor([[3.0, 5.0]]), torch.ones(())
    >>> project(view, torch.ones(2).double(), torch.eye(2).double(), one, "x")
    tensor([[2., 4.]])
    """
    if torch.compiler.is_compiling():
        found: Tensor = _project_operator(view, mean, projection, fitted, name)
        return found
    if torch.is_grad_enabled() and view.requires_grad:
        # The layer may be fitted again before the backward.
        projection = projection.clone()
    return _checked(view, mean, projection, fitted, name)
