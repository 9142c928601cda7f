"""Losses as double loops over float64 scalars, differentiable by autograd, and data for them."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from hypothesis import strategies as st
from torch import Tensor

LABELS = torch.tensor([4, -1, 4, 4, 9, -1, 0])
HALF = (torch.bfloat16, torch.float16)


def cosine(a: Tensor, b: Tensor) -> Tensor:
    return torch.div((a * b).sum(), a.norm() * b.norm())


def scores(x: Tensor, y: Tensor) -> list[list[Tensor]]:
    return [[cosine(a, b) for b in y] for a in x]


def is_negative(i: int, j: int, labels: Tensor | None) -> bool:
    return i != j and (labels is None or bool(labels[i] != labels[j]))


def pairs(
    n: int = 7, k: int = 4, noise: float = 0.7, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, k, dtype=torch.float64)
    y = x + noise * torch.randn(n, k, dtype=torch.float64)
    return x.to(dtype).requires_grad_(), y.to(dtype).requires_grad_()


def loss_and_grads(
    loss: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    value = loss(x, y)
    gx, gy = torch.autograd.grad(value, (x, y))
    return value.detach(), gx, gy


def assert_same(
    ours: tuple[Tensor, ...], reference: tuple[Tensor, ...], tolerance: float = 1e-12
) -> None:
    for a, b in zip(ours, reference, strict=True):
        torch.testing.assert_close(a.double(), b.double(), rtol=tolerance, atol=tolerance)


def assert_finite(loss: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor) -> None:
    value, gx, gy = loss_and_grads(loss, x, y)
    assert value.isfinite()
    assert gx.isfinite().all()
    assert gy.isfinite().all()
    assert (gx.dtype, gy.dtype) == (x.dtype, y.dtype)


@st.composite
def embeddings(draw: st.DrawFn, *, float16_from: float = 1e-6) -> tuple[Tensor, Tensor]:
    """Pairs of any size, dtype and scale, some with repeated, matching, opposite or zero rows.

    A gradient is as large as its vector is short, so float16 may need entries of a minimal size.
    """
    n, k = draw(st.integers(1, 40)), draw(st.integers(1, 12))
    dtype = draw(st.sampled_from((*HALF, torch.float32, torch.float64)))
    float16 = dtype == torch.float16
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    views = []
    for _ in range(2):
        low, high = (float16_from, 1e4) if float16 else (1e-6, 1e6)
        scale = 10 ** draw(st.floats(math.log10(low), math.log10(high)))
        view = torch.randn(n, k, generator=generator) * scale
        views.append(view + torch.full_like(view, low).copysign(view) if float16 else view)
    x, y = views
    match draw(st.sampled_from(("free", "repeated", "same", "opposite", "zero rows", "all zero"))):
        case "repeated":
            x[:] = x[0].clone()
            y[:] = y[0].clone()
        case "same":
            y = x.clone()
        case "opposite":
            y = -x
        case "zero rows":
            x[::2] = 0
            y[::3] = 0
        case "all zero":
            x.zero_()
    return x.to(dtype).requires_grad_(), y.to(dtype).requires_grad_()
