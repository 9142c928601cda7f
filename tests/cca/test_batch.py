"""CCA of a batch against Algorithm 1 in float64, and its backward against finite differences."""

from __future__ import annotations

import statistics

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from ccal.cca.batch import BatchSettings
from ccal.cca.operators import batch_cca
from ccal.cca.statistics import Moments
from ccal.errors import CcalError
from tests.reference import algorithm_1, correlated_views, cosines, ranking_loss, relative_error

SQUARE = {"aligned": BatchSettings(aligned=True, k=3), "canonical": BatchSettings(k=3)}
RIDGES = {"absolute": {}, "relative": {"relative_ridge": True, "ridge_x": 0.3, "ridge_y": 0.1}}


def running_statistics(d_x: int, d_y: int) -> list[Tensor]:
    moments = Moments.of(*correlated_views(30, d_x, d_y, seed=7))
    cov = moments.covariances()
    return [moments.mean_x, moments.mean_y, cov.xx, cov.yy, cov.xy, torch.ones(()).double()]


def leaves(m: int, d_x: int, d_y: int) -> tuple[Tensor, Tensor]:
    x, y = correlated_views(m, d_x, d_y)
    return x.requires_grad_(), y.requires_grad_()


@pytest.mark.parametrize("momentum", [1.0, 0.3])
@pytest.mark.parametrize("ridge", RIDGES)
@pytest.mark.parametrize("name", SQUARE)
def test_backward_for_any_loss(name: str, ridge: str, momentum: float) -> None:
    settings = SQUARE[name]._replace(momentum=momentum, **RIDGES[ridge])
    running = running_statistics(3, 3) if momentum < 1 else []

    def projected(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        batch = batch_cca(x, y, settings, running)
        return batch.x, batch.y, batch.correlations

    assert gradcheck(projected, leaves(10, 3, 3))


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize(("d_x", "d_y", "k"), [(4, 2, 2), (2, 5, 2), (4, 3, 1), (4, 4, 2)])
def test_backward_of_canonical_coordinates(d_x: int, d_y: int, k: int, power: float) -> None:
    def weighted(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        batch = batch_cca(x, y, BatchSettings(k=k, power=power))
        weights = batch.correlations[:k] ** power
        return batch.x[:, :k] * weights, batch.y[:, :k] * weights, batch.correlations[:k]

    assert gradcheck(weighted, leaves(12, d_x, d_y))


@pytest.mark.parametrize("d", [2, 8, 32])
@pytest.mark.parametrize("name", SQUARE)
def test_loss_and_gradient_are_those_of_algorithm_1(name: str, d: int) -> None:
    x, y = leaves(10 * d, d, d)
    reference_x, reference_y, correlations = algorithm_1(x, y)
    reference = ranking_loss(reference_x, reference_y)
    expected = torch.autograd.grad(reference, (x, y))
    batch = batch_cca(x, y, SQUARE[name]._replace(k=d))
    loss = ranking_loss(batch.x, batch.y)
    gradient = torch.autograd.grad(loss, (x, y))
    assert abs(loss.item() - reference.item()) < 1e-10
    for value, target in zip(gradient, expected, strict=True):
        assert (value - target).abs().max() < 1e-10
    torch.testing.assert_close(batch.correlations, correlations, rtol=1e-9, atol=1e-9)


def test_projections_whiten_and_correlate() -> None:
    x, y = correlated_views(100, 5, 3)
    batch, cov = batch_cca(x, y, BatchSettings(k=3)), Moments.of(x, y).covariances()
    identity_x, identity_y = torch.eye(5).double(), torch.eye(3).double()
    torch.testing.assert_close(batch.A.T @ (cov.xx + 1e-3 * identity_x) @ batch.A, identity_x)
    torch.testing.assert_close(batch.B.T @ (cov.yy + 1e-3 * identity_y) @ batch.B, identity_y)
    correlation = batch.A.T @ cov.xy @ batch.B
    torch.testing.assert_close(correlation[:3], torch.diag(batch.correlations))
    torch.testing.assert_close(correlation[3:], torch.zeros(2, 3).double())


def test_aligned_and_canonical_cosines_agree() -> None:
    x, y = correlated_views(200, 8, 8)
    aligned, canonical = (batch_cca(x, y, BatchSettings(aligned=a, k=8)) for a in (True, False))
    torch.testing.assert_close(cosines(aligned.x, aligned.y), cosines(canonical.x, canonical.y))


def gradients(x: Tensor, y: Tensor, settings: BatchSettings) -> tuple[Tensor, Tensor]:
    x, y = x.clone().requires_grad_(), y.clone().requires_grad_()
    batch = batch_cca(x, y, settings)
    k = int(settings.k)
    weights = batch.correlations[:k].to(batch.x) ** settings.power
    loss = ranking_loss(batch.x[:, :k] * weights, batch.y[:, :k] * weights)
    return torch.autograd.grad(loss, (x, y))  # type: ignore[return-value]


def repeated_correlations(m: int, d: int) -> tuple[Tensor, Tensor]:
    """Exactly isotropic views whose canonical correlations come in two equal halves."""
    basis = torch.linalg.qr(
        torch.randn(m, 2 * d + 1, dtype=torch.float64).index_fill_(1, torch.tensor([0]), 1.0)
    ).Q[:, 1:]
    rho = torch.tensor([0.9, 0.4]).double().repeat_interleave(d // 2)
    x = basis[:, :d]
    y = x * rho + basis[:, d:] * (1 - rho**2).sqrt()
    return x * (m - 1) ** 0.5, y * (m - 1) ** 0.5


def degenerate(name: str, seed: int = 0) -> tuple[Tensor, Tensor]:
    m, d = 200, 16
    x, y = correlated_views(m, d, d, seed=seed)
    if name == "repeated correlations":
        return repeated_correlations(m, d)
    if name == "copied columns":
        # Copied in both views: were one view alone short of a rank, the other would have axes to
        # pair with nothing, in arbitrary order, and no gradient would be the right one.
        x[:, 10:], y[:, :6] = x[:, :6], y[:, 10:]
    if name == "constant columns":
        x[:, :3], y[:, -5:] = 2.0, -1.0
    if name == "ill conditioned":
        x = x * torch.logspace(0, -4, d).double()
    if name == "hardly any variance":
        # Far below the ridge, so that those axes have hardly any correlation.
        low = torch.randn(d - 4, d, generator=torch.Generator().manual_seed(seed)).double()
        x, y = x[:, 4:] @ low + 1e-4 * y.roll(1, 0), y[:, 4:] @ low.flip(1) + 1e-4 * x.roll(1, 0)
    if name == "large mean":
        x = x + 100
    if name == "large scale":
        x, y = 1e3 * x, 1e3 * y
    return x, y


@pytest.mark.parametrize(
    "settings",
    [
        BatchSettings(aligned=True, k=16),
        BatchSettings(k=16),
        BatchSettings(k=16, power=1.0),
        BatchSettings(k=16, power=2.0),
    ],
)
@pytest.mark.parametrize(
    "name",
    [
        "ordinary",
        "repeated correlations",
        "copied columns",
        "constant columns",
        "ill conditioned",
        "hardly any variance",
        "large mean",
        "large scale",
    ],
)
def test_float32_gradient_is_close_to_float64(name: str, settings: BatchSettings) -> None:
    errors = []
    for seed in range(9):
        x, y = (view.float() for view in degenerate(name, seed))
        exact = gradients(x.double(), y.double(), settings)
        pairs = zip(gradients(x, y, settings), exact, strict=True)
        errors.append(max(relative_error(value, target) for value, target in pairs))
    # In few draws a hinge is so near to its margin that it opens in one precision alone.
    assert statistics.median(errors) < 1e-4


@pytest.mark.parametrize("shift", [1, 7, 40])
@pytest.mark.parametrize("scale", [1.0, 100.0])
@pytest.mark.parametrize("relative_ridge", [False, True])
@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_views_that_lack_different_ranks(
    dtype: torch.dtype, aligned: bool, relative_ridge: bool, scale: float, shift: int
) -> None:
    """Axes left without partner have correlations of rounding, which nothing is divided by."""
    settings = BatchSettings(aligned=aligned, relative_ridge=relative_ridge, k=32)
    x, y = (scale * view.to(dtype) for view in correlated_views(500, 32, 32))
    turn_x, turn_y = (view.roll(shift, 0) for view in (x, y))
    for view in (x, turn_x):
        view[:, -8:] = view[:, :8]
    for view in (y, turn_y):
        view[:, -5:] = view[:, :5]
    gx, gy = gradients(x, y, settings)

    def loss(step: float) -> float:
        moved = x.double() + step * turn_x.double(), y.double() + step * turn_y.double()
        batch = batch_cca(*moved, settings)
        return ranking_loss(batch.x, batch.y).item()

    slope = (loss(1e-6) - loss(-1e-6)) / 2e-6
    found = (gx * turn_x).sum() + (gy * turn_y).sum()
    # The difference of two copies is a feature that may be whitened by 1 / sqrt(ridge).
    size = sum(g.norm().item() * view.norm().item() for g, view in ((gx, x), (gy, y)))
    assert size < 100 * scale
    assert found.item() == pytest.approx(slope, rel=2e-3, abs=1e-8 * size)


@pytest.mark.parametrize("least", [1e-2, 1e-3, 1e-4, 1e-5, 1e-6])
@pytest.mark.parametrize("swap", [False, True])
def test_float32_with_a_small_correlation_and_different_dimensions(
    least: float, swap: bool
) -> None:
    basis = torch.linalg.qr(
        torch.randn(200, 10, dtype=torch.float64).index_fill_(1, torch.tensor([0]), 1.0)
    ).Q[:, 1:]
    rho = torch.tensor([0.9, 0.5, least]).double()
    x, y = basis[:, :6], basis[:, :3] * rho + basis[:, 6:] * (1 - rho**2).sqrt()
    x, y = (14 * view.float() for view in ((y, x) if swap else (x, y)))
    settings = BatchSettings(k=3, ridge_x=1e-6, ridge_y=1e-6)
    exact = gradients(x.double(), y.double(), settings)
    for value, target in zip(gradients(x, y, settings), exact, strict=True):
        assert relative_error(value, target) < 1e-3


@pytest.mark.parametrize("seed", range(4))
def test_rarely_active_units(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    cause, loads, noise = (
        torch.randn(*shape, generator=generator) for shape in ((500, 1), (2, 1, 128), (2, 500, 128))
    )
    x, y = torch.relu(cause @ loads + 0.3 * noise - 2)
    settings = BatchSettings(aligned=True, k=128)
    exact = gradients(x.double(), y.double(), settings)
    for value, target in zip(gradients(x, y, settings), exact, strict=True):
        assert target.norm() < 1
        assert value.norm() < 1


@pytest.mark.parametrize(("m", "d", "k"), [(500, 32, 8), (1000, 128, 64)])
@pytest.mark.parametrize("seed", range(4))
def test_float32_with_fewer_components(m: int, d: int, k: int, seed: int) -> None:
    # Neighbouring correlations are close; the guard against ties may not bend the gradient there.
    generator = torch.Generator().manual_seed(seed)
    x, mixing, noise = (torch.randn(n, d, generator=generator) for n in (m, d, m))
    y = x @ mixing / d**0.5 + noise
    weights = torch.randn(m, m, generator=generator)

    def gradient(x: Tensor, y: Tensor) -> Tensor:
        x, y = x.requires_grad_(), y.requires_grad_()
        batch = batch_cca(x, y, BatchSettings(k=k))
        # Smooth, since rounding may switch a hinge of the ranking loss.
        loss = (cosines(batch.x[:, :k], batch.y[:, :k]) * weights.to(x)).sum()
        return torch.cat(torch.autograd.grad(loss, (x, y)))

    assert relative_error(gradient(x, y), gradient(x.double(), y.double())) < 1e-4


def test_gradients_of_a_wide_layer() -> None:
    x, y = correlated_views(600, 120, 120, dtype=torch.float32)
    settings = BatchSettings(aligned=True, k=120)
    exact = gradients(x.double(), y.double(), settings)
    for value, target in zip(gradients(x, y, settings), exact, strict=True):
        assert relative_error(value, target) < 1e-4


@pytest.mark.parametrize("ridge", [1e-3, 0.0])
def test_features_of_very_different_scale(ridge: float) -> None:
    x, y = correlated_views(300, 8, 8, dtype=torch.float32)
    x = x * torch.logspace(-4, 4, 8)
    settings = BatchSettings(aligned=True, k=8, ridge_x=ridge, ridge_y=ridge)
    value, target = batch_cca(x, y, settings), batch_cca(x.double(), y.double(), settings)
    torch.testing.assert_close(
        cosines(value.x, value.y).double(), cosines(target.x, target.y), atol=1e-5, rtol=0
    )


def test_double_backward_is_refused() -> None:
    x, y = leaves(10, 2, 2)
    with pytest.raises(CcalError, match="cannot be differentiated twice"):
        torch.autograd.grad(batch_cca(x, y, BatchSettings(k=2)).x.sum(), x, create_graph=True)


@pytest.mark.parametrize("name", SQUARE)
def test_operators_are_registered_correctly(name: str) -> None:
    x, y = leaves(10, 3, 3)
    running = running_statistics(3, 3)
    arguments = (x, y, running, [float(v) for v in SQUARE[name]._replace(momentum=0.5)])
    torch.library.opcheck(torch.ops.ccal.batch_cca.default, arguments)
