from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck

from ccal.cca import (
    CCA,
    CCALayer,
    Covariances,
    Moments,
    add_ridge,
    canonical_projections,
    polar_factor,
    whitened_cross_covariance,
    whitening,
)
from ccal.cca.solver import solve, usable_ridge
from ccal.cca.spectral import singular_vectors
from ccal.errors import InputError
from tests.reference import correlated_views

DIMS = [(4, 4, 4), (4, 4, 2), (5, 3, 3), (3, 5, 3), (5, 3, 2), (2, 6, 1)]


def covariances(m: int, d_x: int, d_y: int, ridge: float = 1e-3) -> tuple[Tensor, Tensor, Tensor]:
    cov = Moments.of(*correlated_views(m, d_x, d_y)).covariances()
    return add_ridge(cov.xx, ridge), add_ridge(cov.yy, ridge), cov.xy


def symmetrised(xx: Tensor, yy: Tensor, xy: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return (xx + xx.mT) / 2, (yy + yy.mT) / 2, xy


@pytest.mark.parametrize(("d_x", "d_y", "k"), DIMS)
def test_projections_solve_cca(d_x: int, d_y: int, k: int) -> None:
    xx, yy, xy = covariances(200, d_x, d_y)
    A, B, d = canonical_projections(xx, yy, xy, k)
    identity = torch.eye(k).double()
    torch.testing.assert_close(A.T @ xx @ A, identity)
    torch.testing.assert_close(B.T @ yy @ B, identity)
    torch.testing.assert_close(A.T @ xy @ B, torch.diag(d))
    assert (d.diff() <= 0).all()


@pytest.mark.parametrize(("d_x", "d_y", "k"), DIMS)
def test_correlations_are_the_singular_values_of_t(d_x: int, d_y: int, k: int) -> None:
    xx, yy, xy = covariances(200, d_x, d_y)
    T = whitened_cross_covariance(xx, yy, xy)
    d = canonical_projections(xx, yy, xy, k)[2]
    torch.testing.assert_close(d, torch.linalg.svdvals(T)[:k])
    if k == min(d_x, d_y):
        torch.testing.assert_close(d.sum(), torch.linalg.matrix_norm(T, "nuc"))


@pytest.mark.parametrize(("d_x", "d_y", "k"), DIMS)
def test_backward_of_canonical_projections(d_x: int, d_y: int, k: int) -> None:
    inputs = tuple(t.requires_grad_() for t in covariances(200, d_x, d_y, ridge=0.1))

    def projections(*cov: Tensor) -> tuple[Tensor, ...]:
        return canonical_projections(*symmetrised(*cov), k)

    assert gradcheck(projections, inputs)


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (2, 6), (1, 1)])
def test_polar_factor_and_its_backward(shape: tuple[int, int]) -> None:
    T = torch.randn(*shape, dtype=torch.float64, requires_grad=True)
    Q = polar_factor(T)
    U, d, Vh = torch.linalg.svd(T.detach(), full_matrices=False)
    torch.testing.assert_close(Q.detach(), U @ Vh)
    torch.testing.assert_close((Q.T @ T).trace().detach(), d.sum())
    assert gradcheck(polar_factor, (T,))


def test_polar_backward_is_the_formula_of_two_eigendecompositions() -> None:
    T = torch.randn(5, 5, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(5, 5, dtype=torch.float64)
    (fast,) = torch.autograd.grad((polar_factor(T) * weights).sum(), T)
    e, V = torch.linalg.eigh(T.T @ T)
    slow_Q = T @ V @ torch.diag(e**-0.5) @ V.T
    (slow,) = torch.autograd.grad((slow_Q * weights).sum(), T)
    torch.testing.assert_close(fast, slow, rtol=1e-10, atol=1e-10)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.sampled_from([0.0, 1e-9, 0.3, 0.3 + 1e-12, 0.7, 1.0]), min_size=1, max_size=6),
    st.integers(0, 3),
    st.integers(0, 3),
    st.integers(1, 9),
)
def test_gradients_are_finite_where_correlations_coincide(
    correlations: list[float], extra_x: int, extra_y: int, k: int
) -> None:
    n = len(correlations)
    xx = torch.eye(n + extra_x, dtype=torch.float64, requires_grad=True)
    yy = torch.eye(n + extra_y, dtype=torch.float64, requires_grad=True)
    xy = torch.zeros(n + extra_x, n + extra_y, dtype=torch.float64)
    xy[:n, :n] = torch.diag(torch.tensor(correlations, dtype=torch.float64))
    xy.requires_grad_()
    A, B, d = canonical_projections(xx, yy, xy, min(k, n))
    (A.sin().sum() + B.cos().sum() + d.square().sum() + polar_factor(xy).sin().sum()).backward()
    for tensor in (xx, yy, xy):
        assert tensor.grad is not None
        assert tensor.grad.isfinite().all()


def test_tied_correlations_keep_the_exact_gradient_of_an_invariant_loss() -> None:
    """A'SxyB summed over a tied plane does not see rotations; its gradient is known: that of T."""
    xx, yy = torch.eye(3).double(), torch.eye(3).double()
    xy = torch.diag(torch.tensor([0.8, 0.5, 0.5]).double()).requires_grad_()
    A, B, _ = canonical_projections(xx, yy, xy)
    weights = torch.randn(3, 3).double()
    (grad,) = torch.autograd.grad(((A @ B.T) * weights).sum(), xy)
    (expected,) = torch.autograd.grad((polar_factor(xy) * weights).sum(), xy)
    torch.testing.assert_close(grad, expected)


def test_signs_are_fixed() -> None:
    xx, yy, xy = covariances(100, 4, 3)
    A, B, _ = canonical_projections(xx, yy, xy)
    flipped_A, flipped_B, _ = canonical_projections(xx, yy, -xy)
    torch.testing.assert_close(flipped_A, A)
    torch.testing.assert_close(flipped_B, -B)
    assert (A.gather(0, A.abs().argmax(0, keepdim=True)) > 0).all()


@pytest.mark.parametrize(("d_x", "d_y"), [(6, 6), (6, 4), (3, 7)])
@pytest.mark.parametrize("relative", [False, True])
def test_layer_refit_estimator_and_functions_give_one_answer(
    d_x: int, d_y: int, relative: bool
) -> None:
    x, y = correlated_views(200, d_x, d_y)
    cov = Moments.of(x, y).covariances()
    xx, yy = add_ridge(cov.xx, 0.1, relative=relative), add_ridge(cov.yy, 0.2, relative=relative)
    expected = canonical_projections(xx, yy, cov.xy, 3)
    options: dict[str, Any] = {"ridge": (0.1, 0.2), "relative_ridge": relative}
    refitted, trained = (
        CCALayer(d_x, d_y, k=3, coordinates="canonical", **options) for _ in range(2)
    )
    refitted.refit((x, y))
    trained(x, y)
    cca = CCA(3, **options).fit(x, y)
    answers = [
        (layer.projection_x, layer.projection_y, layer.correlations)
        for layer in (refitted, trained)
    ]
    learned = (cca.x_projection_, cca.y_projection_, cca.correlations_)
    for found in (*answers, tuple(torch.from_numpy(array) for array in learned)):
        for value, target in zip(found, expected, strict=True):
            torch.testing.assert_close(value, target, rtol=0, atol=1e-12)


@pytest.mark.parametrize("k", [1, 3])
def test_leading_components_are_those_of_the_full_solution(k: int) -> None:
    cov = Covariances(*covariances(200, 5, 3))
    full, leading = solve(cov), solve(cov, k=k)
    assert full.A.shape == (5, 5)
    assert full.B.shape == (3, 3)
    for value, target in zip(leading[:2], full[:2], strict=True):
        torch.testing.assert_close(value, target[:, :k])
    torch.testing.assert_close(leading.d, full.d[:k])


def test_aligned_projections_are_the_canonical_ones_turned() -> None:
    cov = Covariances(*covariances(200, 4, 4))
    canonical, aligned = solve(cov), solve(cov, aligned=True)
    H = aligned.A.T @ cov.xy @ aligned.B
    torch.testing.assert_close(H, aligned.V @ torch.diag(aligned.d) @ aligned.V.T)
    torch.testing.assert_close(aligned.A @ aligned.B.T, canonical.A @ canonical.B.T)


def test_a_ridge_is_raised_only_where_rank_is_missing() -> None:
    full = torch.diag(torch.logspace(-12, 12, 5).double())
    assert usable_ridge(full, 0.0) == 0.0
    deficient = torch.ones(5, 5).double()
    assert 0 < usable_ridge(deficient, 0.0) < 1e-12
    assert usable_ridge(deficient, 0.5) == 0.5
    assert usable_ridge(torch.zeros(5, 5).double(), 0.0) == 1.0


def test_whitening() -> None:
    xx, _, _ = covariances(100, 4, 4)
    W = whitening(xx)
    torch.testing.assert_close(W @ xx @ W.T, torch.eye(4).double())


def test_ridge_absolute_relative_and_floored() -> None:
    cov = torch.diag(torch.tensor([1.0, 3.0]).double())
    torch.testing.assert_close(add_ridge(cov, 0.5), cov + 0.5 * torch.eye(2))
    torch.testing.assert_close(add_ridge(cov, 0.5, relative=True), cov + torch.eye(2))
    zero = torch.zeros(3, 3).double()
    assert torch.linalg.cholesky(add_ridge(zero, 0.0)).isfinite().all()
    rank_one = torch.ones(50, 50).double() * 1e6
    assert whitening(add_ridge(rank_one, 0.0)).isfinite().all()


def test_relative_ridge_has_a_gradient() -> None:
    cov = torch.eye(3, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda c: add_ridge(c, 0.2, relative=True), (cov,))


@pytest.mark.parametrize("k", [0, 4])
def test_k_out_of_range_is_refused(k: int) -> None:
    with pytest.raises(InputError, match=f"at least 1 and of at most 3, got k={k}"):
        canonical_projections(*covariances(50, 3, 5), k)


@pytest.mark.parametrize("shape", [(510, 600), (600, 510)])
@pytest.mark.parametrize("least", [0.05, 1e-6])
def test_leading_singular_vectors_are_those_of_an_svd(shape: tuple[int, int], least: float) -> None:
    """Also where the kept values are too small for eigenvectors of T T'."""
    generator = torch.Generator().manual_seed(0)
    drawn = (torch.randn(n, 510, generator=generator, dtype=torch.float64) for n in shape)
    left, right = (torch.linalg.qr(part)[0] for part in drawn)
    values = torch.logspace(0, 5 * torch.tensor(least).log10().item(), 510, dtype=torch.float64)
    T = left * values @ right.mT
    k = 100
    U, d, V = singular_vectors(T, k=k)
    torch.testing.assert_close(d, values[:k], rtol=1e-9, atol=1e-14)
    eye = torch.eye(k, dtype=torch.float64)
    for part in (U, V):
        torch.testing.assert_close(part.mT @ part, eye, rtol=0, atol=1e-12)
    torch.testing.assert_close(U.mT @ T, d[:, None] * V.mT, rtol=0, atol=1e-12)
    turned = (U * left[:, :k]).sum(0)
    torch.testing.assert_close(turned.abs(), torch.ones(k, dtype=torch.float64), rtol=0, atol=1e-9)
