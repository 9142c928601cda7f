"""CCA of a batch as a differentiable step, in eager mode and under torch.compile.

torch.compile cannot trace choices that depend on the data, so there the two passes are operators
that it does not look into. In eager mode a plain autograd function costs less.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ccal.cca.checks import refuse_second_derivative
from ccal.cca.fused import Facts, Pass, backward_pass, forward_pass
from ccal.cca.raising import raised
from ccal.cca.settings import Settings

__all__ = ["BatchCCA", "batch_cca"]

_SAVED = len(Pass._fields)


class BatchCCA(NamedTuple):
    """CCA of a batch. Gradients flow through `x`, `y` and `correlations`; the rest is for storing.

    `x` (m, d_x) and `y` (m, d_y) are the samples in the frames `A` and `B`. The means are those of
    the statistics; the covariances xx, yy, xy, without ridge, are the running ones, if there are
    any.
    """

    x: Tensor
    y: Tensor
    correlations: Tensor
    A: Tensor
    B: Tensor
    mean_x: Tensor
    mean_y: Tensor
    covariances: tuple[Tensor, ...]


def batch_cca(x: Tensor, y: Tensor, settings: Settings, running: Sequence[Tensor] = ()) -> BatchCCA:
    """Project a batch onto its own full frames, with gradients through their computation.

    `x` (m, d_x) and `y` (m, d_y) are checked pairs; half precision is raised to float32.
    `running` is empty, or holds the statistics to be averaged with those of the batch: mean_x,
    mean_y, xx, yy, xy and the number of batches in them.
    """
    if not (x.dtype is y.dtype is torch.float32):
        dtype = torch.promote_types(torch.promote_types(x.dtype, y.dtype), torch.float32)
        x, y = raised(x, dtype), raised(y, dtype)
    if torch.compiler.is_compiling():
        saved = _operator(x, y, list(running), list(map(float, settings)))
        constants = (t.detach() for t in (*saved[3:7], *saved[_SAVED:-1]))
        return _gathered(*saved[:3], *constants)
    return _gathered(*_Eager.apply(x, y, list(running), settings))  # type: ignore[no-untyped-call]


def _gathered(x: Tensor, y: Tensor, correlations: Tensor, *constants: Tensor) -> BatchCCA:
    A, B, mean_x, mean_y, *covariances = constants
    return BatchCCA(x, y, correlations, A, B, mean_x, mean_y, tuple(covariances))


def _full_precision(x: Tensor) -> AbstractContextManager[object]:
    """No autocast; cheaper than `torch.autocast` where there is none to switch off."""
    device = x.device.type
    if torch.is_autocast_enabled(device):
        return torch.autocast(device, enabled=False)
    return nullcontext()


class _Eager(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor, running: list[Tensor], settings: Settings
    ) -> tuple[Tensor, ...]:
        with _full_precision(x):
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
        with _full_precision(x):
            found = backward_pass(
                (grad_x, grad_y, grads[2]), x, y, Pass(*fields), ctx.facts, ctx.settings
            )
        return *found, None, None


@torch.library.custom_op("ccal::batch_cca", mutates_args=())
def _operator(x: Tensor, y: Tensor, running: list[Tensor], settings: list[float]) -> list[Tensor]:
    with _full_precision(x):
        saved, covariances, facts = forward_pass(x, y, running, Settings(*settings))
    # An operator's outputs are tensors, and their dtypes are known beforehand.
    constants = ("A", "B", "mean_x", "mean_y", "V")
    saved = saved._replace(**{name: getattr(saved, name).double() for name in constants})
    outputs = (
        x.new_empty(0, dtype=torch.float64) if output is None else output.contiguous()
        for output in (*saved, *covariances)
    )
    return [*outputs, torch.tensor(facts, dtype=torch.float64)]


@_operator.register_fake
def _(x: Tensor, y: Tensor, running: list[Tensor], settings: list[float]) -> list[Tensor]:
    s, dx, dy = Settings(*settings), x.shape[1], y.shape[1]
    wide = x.new_empty(0, dtype=torch.float64)
    views = [x.new_empty(x.shape), y.new_empty(y.shape), wide.new_empty(min(dx, dy))]
    frames = [wide.new_empty(dx, dx), wide.new_empty(dy, dy)]
    means = [wide.new_empty(dx), wide.new_empty(dy)]
    shapes = [(dx, dx), (dy, dy), (dx, dy)] if running else []
    covariances = [wide.new_empty(shape) for shape in shapes]
    V = wide.new_empty((dx, dx) if s.aligned else 0)
    shifts = [wide.new_empty(dx if running else 0), wide.new_empty(dy if running else 0)]
    facts = torch.empty(len(Facts._fields), dtype=torch.float64, device="cpu")
    return [*views, *frames, *means, V, *shifts, *covariances, facts]


@torch.library.custom_op("ccal::batch_cca_backward", mutates_args=())
def _backward_operator(
    grads: list[Tensor], saved: list[Tensor], settings: list[float]
) -> list[Tensor]:
    (grad_x, grad_y, grad_d), (x, y, *fields, shift_x, shift_y, facts) = grads, saved
    shifts = (shift if len(shift) else None for shift in (shift_x, shift_y))
    with _full_precision(x):
        found = backward_pass(
            (grad_x, grad_y, grad_d),
            x,
            y,
            Pass(*fields, *shifts),
            Facts(*facts.tolist()),
            Settings(*settings),
        )
    return list(found)


@_backward_operator.register_fake
def _(grads: list[Tensor], saved: list[Tensor], settings: list[float]) -> list[Tensor]:
    return [view.new_empty(view.shape) for view in saved[:2]]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    x, y, running, ctx.settings = inputs
    ctx.no_gradient = [None] * len(running)
    ctx.save_for_backward(x, y, *output[:_SAVED], output[-1])


def _autograd(ctx: Any, grads: list[Tensor]) -> tuple[Tensor, Tensor, list[None], None]:
    grad_x, grad_y = _backward_operator(grads[:3], list(ctx.saved_tensors), ctx.settings)
    return grad_x, grad_y, ctx.no_gradient, None


_operator.register_autograd(_autograd, setup_context=_setup_context)
