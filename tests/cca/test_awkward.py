"""Awkward batches: never NaN, never infinite, forward or backward."""

from __future__ import annotations

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
]
# float16 does not hold samples of 1e6.
SCALES = {
    torch.float16: st.floats(-1, 2),
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
    return x, y


@st.composite
def batches(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    kind = draw(st.sampled_from(SHAPES))
    dtype = draw(st.sampled_from(list(SCALES)))
    d = draw(st.integers(1, 8))
    m = draw(st.integers(2, 2 * d + 2))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    x, y = awkward_views(kind, m, d, generator)
    x = (x * 10 ** draw(SCALES[dtype])).to(dtype)
    y = (y * 10 ** draw(SCALES[dtype])).to(dtype)
    return x.requires_grad_(), y.requires_grad_()


def ridges(dtype: torch.dtype) -> st.SearchStrategy[tuple[float, bool]]:
    smallest = 1e-3 if dtype == torch.float16 else 0.0
    return st.tuples(st.sampled_from([smallest, 1e-3, 1.0]), st.booleans())


@st.composite
def layers(draw: st.DrawFn, d: int, dtype: torch.dtype) -> CCALayer:
    ridge, relative = draw(ridges(dtype))
    kind = draw(st.sampled_from(["aligned", "canonical", "truncated", "weighted", "products"]))
    if kind == "canonical":
        return CCALayer(d, ridge=ridge, relative_ridge=relative, coordinates="canonical")
    if kind == "truncated":
        return CCALayer(d, ridge=ridge, relative_ridge=relative, k=(d + 1) // 2)
    if kind == "weighted":
        power = draw(st.sampled_from([0.5, 1.0, 3.0]))
        return CCALayer(d, ridge=ridge, relative_ridge=relative, power=power)
    return CCALayer(
        d,
        ridge=ridge,
        relative_ridge=relative,
        solver="newton-schulz" if kind == "products" else "eigh",
    )


def assert_finite(loss: Tensor, x: Tensor, y: Tensor) -> None:
    assert loss.isfinite()
    # float16 does not hold gradients above 65504 either: losses are scaled to suit it, here down.
    scale = 2.0**-12 if x.dtype == torch.float16 else 1.0
    for grad in torch.autograd.grad(scale * loss, (x, y)):
        assert grad.isfinite().all()


@settings(deadline=None, max_examples=400)
@given(st.data(), batches())
def test_layer(data: st.DataObject, batch: tuple[Tensor, Tensor]) -> None:
    x, y = batch
    layer = data.draw(layers(x.shape[1], x.dtype))
    xs, ys = layer(x, y)
    assert xs.isfinite().all()
    assert ys.isfinite().all()
    assert_finite(PairwiseRankingLoss()(xs, ys), x, y)
    layer.eval()
    assert layer.project_x(x).isfinite().all()
    assert layer.project_y(y).isfinite().all()


@settings(deadline=None, max_examples=200)
@given(st.data(), batches())
def test_trace_norm(data: st.DataObject, batch: tuple[Tensor, Tensor]) -> None:
    ridge, relative = data.draw(ridges(batch[0].dtype))
    loss = TraceNormLoss(ridge=ridge, relative_ridge=relative)(*batch)
    assert_finite(loss, *batch)
    assert -batch[0].shape[1] * (1 + 1e-3) <= loss.item() <= 0
