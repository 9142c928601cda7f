"""Differentiable steps of the layer, in eager mode and under torch.compile.

`batch_cca` projects a batch by its own CCA, `project` one view by a stored projection. Both make
choices and checks that depend on the data, which torch.compile cannot trace. So there they are
custom operators that it does not look into; in eager mode plain functions cost less.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ccal.cca.batch import BatchSettings, Facts, Pass, backward_pass, forward_pass
from ccal.cca.checks import check_finite, refuse_second_derivative
from ccal.cca.precision import full_precision, upcast, working_dtype
from ccal.errors import NotFittedError

_SAVED = len(Pass._fields)


class BatchCCA(NamedTuple):
    """CCA of a batch. Gradients flow through `x`, `y` and `correlations`; the rest is for storing.

    `x` (m, d_x) and `y` (m, d_y) are the samples projected by `A` and `B`. The means are those of
    the statistics; the covariances are the running xx, yy, xy without ridge, if there are any.
    """

    x: Tensor
    y: Tensor
    correlations: Tensor
    A: Tensor
    B: Tensor
    mean_x: Tensor
    mean_y: Tensor
    covariances: tuple[Tensor, ...]


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
        saved = _batch_operator(x, y, list(running), list(map(float, settings)))
        constants = (t.detach() for t in (*saved[3:7], *saved[_SAVED:-1]))
        return _gathered(*saved[:3], *constants)
    return _gathered(*_Eager.apply(x, y, list(running), settings))  # type: ignore[no-untyped-call]


def _gathered(x: Tensor, y: Tensor, correlations: Tensor, *constants: Tensor) -> BatchCCA:
    A, B, mean_x, mean_y, *covariances = constants
    return BatchCCA(x, y, correlations, A, B, mean_x, mean_y, tuple(covariances))


class _Eager(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor, running: list[Tensor], settings: BatchSettings
    ) -> tuple[Tensor, ...]:
        with full_precision(x):
            saved, covariances, ctx.facts = forward_pass(x, y, running, settings)
        ctx.settings = settings
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*saved[3:7], *covariances)
        ctx.save_for_backward(x, y, *saved)
        return *saved[:7], *covariances

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        refuse_second_derivative("CCA of a batch")
        x, y, *fields = ctx.saved_tensors
        grad_x, grad_y = (
            torch.zeros_like(output) if grad is None else grad
            for grad, output in zip(grads[:2], fields[:2], strict=True)
        )
        with full_precision(x):
            found = backward_pass(
                (grad_x, grad_y, grads[2]), x, y, Pass(*fields), ctx.facts, ctx.settings
            )
        return *found, None, None


@torch.library.custom_op("ccal::batch_cca", mutates_args=())
def _batch_operator(
    x: Tensor, y: Tensor, running: list[Tensor], settings: list[float]
) -> list[Tensor]:
    with full_precision(x):
        saved, covariances, facts = forward_pass(x, y, running, BatchSettings(*settings))
    # An operator returns tensors alone, of dtypes that do not depend on the data.
    constants = ("A", "B", "mean_x", "mean_y", "V")
    saved = saved._replace(**{name: getattr(saved, name).double() for name in constants})
    outputs = (
        x.new_empty(0, dtype=torch.float64) if output is None else output.contiguous()
        for output in (*saved, *covariances)
    )
    return [*outputs, torch.tensor(facts, dtype=torch.float64)]


@_batch_operator.register_fake
def _(x: Tensor, y: Tensor, running: list[Tensor], settings: list[float]) -> list[Tensor]:
    s, dx, dy = BatchSettings(*settings), x.shape[1], y.shape[1]
    wide = x.new_empty(0, dtype=torch.float64)
    views = [x.new_empty(x.shape), y.new_empty(y.shape), wide.new_empty(min(dx, dy))]
    projections = [wide.new_empty(dx, dx), wide.new_empty(dy, dy)]
    means = [wide.new_empty(dx), wide.new_empty(dy)]
    shapes = [(dx, dx), (dy, dy), (dx, dy)] if running else []
    covariances = [wide.new_empty(shape) for shape in shapes]
    V = wide.new_empty((dx, dx) if s.aligned else 0)
    shifts = [wide.new_empty(dx if running else 0), wide.new_empty(dy if running else 0)]
    facts = torch.empty(len(Facts._fields), dtype=torch.float64, device="cpu")
    return [*views, *projections, *means, V, *shifts, *covariances, facts]


@torch.library.custom_op("ccal::batch_cca_backward", mutates_args=())
def _backward_operator(
    grads: list[Tensor], saved: list[Tensor], settings: list[float]
) -> list[Tensor]:
    (grad_x, grad_y, grad_d), (x, y, *fields, shift_x, shift_y, facts) = grads, saved
    shifts = (shift if len(shift) else None for shift in (shift_x, shift_y))
    with full_precision(x):
        found = backward_pass(
            (grad_x, grad_y, grad_d),
            x,
            y,
            Pass(*fields, *shifts),
            Facts(*facts.tolist()),
            BatchSettings(*settings),
        )
    return list(found)


@_backward_operator.register_fake
def _(grads: list[Tensor], saved: list[Tensor], settings: list[float]) -> list[Tensor]:
    return [view.new_empty(view.shape) for view in saved[:2]]


def _save_batch(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    x, y, running, ctx.settings = inputs
    ctx.no_gradient = [None] * len(running)
    ctx.save_for_backward(x, y, *output[:_SAVED], output[-1])


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
