"""Awkward batches: never NaN, never infinite, forward or backward."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ccal.cca import CCALayer
from ccal.losses import PairwiseRankingLoss, TraceNormLoss

pytestmark = pytest.mark.filterwarnings("ignore::ccal.errors.SmallBatchWarning")

SHAPES = [
    "noise",
    "repeated correlations",
    "isotropic",
    "rank deficient",
    "constant columns",
    "constant view",
    "identical views",
    "uncorrelated",
    "zeros",
    "hardly any variance",
]
# float16 does not hold samples of 1e6.
SCALES = {
    torch.float16: st.floats(-6, 4),
    torch.bfloat16: st.floats(-6, 6),
    torch.float32: st.floats(-6, 6),
    torch.float64: st.floats(-6, 6),
}


def awkward_views(kind: str, m: int, d: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    def noise(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    x, y = noise(m, d), noise(m, d)
    if kind == "repeated correlations":
        y = 0.6 * x + 0.8 * y
    elif kind == "isotropic":
        q = torch.linalg.qr(noise(max(m, 2 * d), 2 * d)).Q[:m]
        x, y = q[:, :d], q[:, :d] + q[:, d:]
    elif kind == "rank deficient":
        x, y = x[:, :1] @ noise(1, d), y[:, :2] @ noise(min(2, d), d)
    elif kind == "constant columns":
        x[:, ::2], y[:, : d // 2] = 3.0, -1.0
    elif kind == "constant view":
        x = torch.ones_like(x)
    elif kind == "identical views":
        y = x.clone()
    elif kind == "uncorrelated":
        x[m // 2 :], y[: m // 2] = 0.0, 0.0
    elif kind == "zeros":
        x, y = torch.zeros_like(x), torch.zeros_like(y)
    elif kind == "hardly any variance":
        x, y = x * torch.logspace(0, -8, d).double(), y * torch.logspace(-8, 0, d).double()
    return x, y


@st.composite
def batches(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    kind = draw(st.sampled_from(SHAPES))
    dtype = draw(st.sampled_from(list(SCALES)))
    d = draw(st.one_of(st.integers(1, 8), st.just(100)))
    m = draw(st.integers(2, 2 * d + 2))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    x, y = awkward_views(kind, m, d, generator)
    x = (x * 10 ** draw(SCALES[dtype])).to(dtype)
    y = (y * 10 ** draw(SCALES[dtype])).to(dtype)
    return x.requires_grad_(), y.requires_grad_()


RIDGES = st.tuples(st.sampled_from([0.0, 1e-3, 1.0]), st.booleans())


@st.composite
def layers(draw: st.DrawFn, d: int) -> CCALayer:
    ridge, relative = draw(RIDGES)
    kinds = [
        {},
        {"coordinates": "canonical"},
        {"k": (d + 1) // 2},
        {"power": draw(st.sampled_from([0.5, 1.0, 3.0]))},
        {"momentum": 0.3},
        {"momentum": 0.3, "coordinates": "canonical"},
    ]
    options: dict[str, Any] = draw(st.sampled_from(kinds))
    return CCALayer(d, ridge=ridge, relative_ridge=relative, **options)


def assert_finite(loss: Tensor, x: Tensor, y: Tensor) -> None:
    assert loss.isfinite()
    for grad in torch.autograd.grad(loss, (x, y)):
        assert grad.isfinite().all()


# The same examples in every run need not be as many as fresh ones.
MANY = 50 if os.environ.get("HYPOTHESIS_PROFILE", "fixed") == "fixed" else 150


@settings(deadline=None, max_examples=3 * MANY)
@given(st.data(), batches())
def test_layer(data: st.DataObject, batch: tuple[Tensor, Tensor]) -> None:
    x, y = batch
    layer = data.draw(layers(x.shape[1]))
    for _ in range(2 if layer.momentum < 1 else 1):
        xs, ys = layer(x, y)
        assert xs.isfinite().all()
        assert ys.isfinite().all()
        assert_finite(PairwiseRankingLoss()(xs, ys), x, y)
    layer.eval()
    assert layer.project_x(x).isfinite().all()
    assert layer.project_y(y).isfinite().all()


@settings(deadline=None, max_examples=2 * MANY)
@given(st.integers(1, 6), st.integers(1, 6), batches())
def test_views_of_different_dimensions(d_x: int, d_y: int, batch: tuple[Tensor, Tensor]) -> None:
    x, y = batch[0][:, :d_x], batch[1][:, :d_y]
    xs, ys = CCALayer(x.shape[1], y.shape[1], ridge=0.0)(x, y)
    assert_finite(PairwiseRankingLoss()(xs, ys), *batch)


@settings(deadline=None, max_examples=2 * MANY)
@given(st.data(), batches())
def test_trace_norm(data: st.DataObject, batch: tuple[Tensor, Tensor]) -> None:
    ridge, relative = data.draw(RIDGES)
    loss = TraceNormLoss(ridge=ridge, relative_ridge=relative)(*batch)
    assert_finite(loss, *batch)
    assert -batch[0].shape[1] * (1 + 1e-3) <= loss.item() <= 0
