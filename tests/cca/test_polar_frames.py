"""Polar factors in float32 against float64 singular value decompositions."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ccal.cca.operators import batch_cca
from ccal.cca.polar_frames import polar_frames
from ccal.cca.settings import Settings
from tests.reference import correlated_views, ranking_loss, relative_error

D = 120


def rotation(generator: torch.Generator) -> Tensor:
    Q: Tensor = torch.linalg.qr(torch.randn(D, D, generator=generator, dtype=torch.float64)).Q
    return Q


def with_singular_values(d: Tensor, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (rotation(generator) * d @ rotation(generator)).float()


def error(T: Tensor) -> float | None:
    """Largest error of an entry of the polar factor; None where there are no frames."""
    frames = polar_frames(T)
    if frames is None:
        return None
    left, _, right = torch.linalg.svd(T.double())
    return float((frames.U @ frames.V.mT - left @ right).abs().max())


@st.composite
def spectra(draw: st.DrawFn) -> Tensor:
    """Clusters of singular values, equal or nearly so, between 1 and 1e-4."""
    sizes = draw(st.lists(st.integers(1, D), min_size=1, max_size=8))
    exponents = [draw(st.floats(-4, 0)) for _ in sizes]
    d = torch.cat([torch.full((n,), 10.0**e) for n, e in zip(sizes, exponents, strict=True)])
    d = d.repeat(-(-D // len(d)))[:D].double()
    spread = draw(st.sampled_from([0.0, 1e-6, 1e-2]))
    noise = torch.rand(D, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return d * (1 + spread * noise)


@settings(deadline=None, max_examples=40)
@given(spectra(), st.integers(0, 1000), st.sampled_from([1e-3, 1.0, 1e3]))
def test_where_there_are_frames_they_are_right(d: Tensor, seed: int, scale: float) -> None:
    found = error(with_singular_values(scale * d, seed))
    # Less than the square of the largest defect.
    assert found is None or found < 5e-5


def test_ordinary_matrices_have_frames() -> None:
    generators = (torch.Generator().manual_seed(seed) for seed in range(20))
    errors = [error(torch.randn(D, D, generator=generator)) for generator in generators]
    found = [e for e in errors if e is not None]
    assert len(found) > 15
    assert max(found) < 5e-6
    clusters = torch.tensor([0.9, 0.4, 0.05]).repeat_interleave(D // 3)
    assert error(with_singular_values(clusters.double())) is not None


def test_singular_values_come_in_float64_and_descend() -> None:
    T = torch.randn(D, D, generator=torch.Generator().manual_seed(0))
    frames = polar_frames(T)
    assert frames is not None
    torch.testing.assert_close(frames.d, torch.linalg.svdvals(T.double()), rtol=1e-5, atol=1e-7 * D)


def test_singular_small_and_broken_matrices_have_none() -> None:
    singular = torch.linspace(0, 1, D).double()
    assert polar_frames(with_singular_values(singular)) is None
    assert polar_frames(torch.zeros(D, D)) is None
    assert polar_frames(torch.full((D, D), torch.nan)) is None
    assert polar_frames(torch.eye(8)) is None


def test_gradients_of_a_layer_this_wide() -> None:
    x, y = correlated_views(600, D, D, dtype=torch.float32)

    def gradient(x: Tensor, y: Tensor) -> Tensor:
        x, y = x.clone().requires_grad_(), y.clone().requires_grad_()
        batch = batch_cca(x, y, Settings(aligned=True, k=D))
        return torch.cat(torch.autograd.grad(ranking_loss(batch.x, batch.y), (x, y)))

    assert relative_error(gradient(x, y), gradient(x.double(), y.double())) < 1e-4
