from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ccal.errors import InputError
from ccal.losses import TraceNormLoss
from tests.reference import correlated_views


def singular_values(x: Tensor, y: Tensor, ridge: float) -> Tensor:
    """Of T with symmetric inverse roots, by autograd: independent of the Cholesky whitening."""
    xc, yc = x - x.mean(0), y - y.mean(0)
    roots = []
    for view in (xc, yc):
        cov = view.T @ view / (len(view) - 1) + ridge * torch.eye(view.shape[1]).double()
        e, V = torch.linalg.eigh(cov)
        roots.append(V @ torch.diag(e**-0.5) @ V.T)
    values: Tensor = torch.linalg.svdvals(roots[0] @ (xc.T @ yc / (len(x) - 1)) @ roots[1])
    return values


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize(("d_x", "d_y", "k"), [(4, 4, None), (4, 4, 2), (5, 3, None), (3, 6, 2)])
def test_loss_and_gradient_are_those_of_svdvals(
    d_x: int, d_y: int, k: int | None, reduction: str
) -> None:
    x, y = (view.requires_grad_() for view in correlated_views(80, d_x, d_y))
    loss = TraceNormLoss(k=k, reduction=reduction)(x, y)  # type: ignore[arg-type]
    values = singular_values(x, y, 1e-3)[:k]
    expected = -(values.sum() if reduction == "sum" else values.mean())
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=1e-10)
    for value, target in zip(
        torch.autograd.grad(loss, (x, y)), torch.autograd.grad(expected, (x, y)), strict=True
    ):
        torch.testing.assert_close(value, target, rtol=1e-8, atol=1e-10)


def test_gradcheck_with_a_relative_ridge_per_view() -> None:
    x, y = (view.requires_grad_() for view in correlated_views(12, 3, 2))
    loss = TraceNormLoss(ridge=(0.5, 0.1), relative_ridge=True)
    assert torch.autograd.gradcheck(loss, (x, y))


def test_gradient_is_finite_at_zero_and_at_ties() -> None:
    x = torch.cat((torch.eye(4), -torch.eye(4), torch.zeros(8, 4))).double().requires_grad_()
    y = x.detach().flip(0).requires_grad_()
    loss = TraceNormLoss()(x, y)
    assert loss.item() == pytest.approx(0, abs=1e-9)
    for grad in torch.autograd.grad(loss, (x, y)):
        assert grad.isfinite().all()
    tied = TraceNormLoss()(x, x.detach().clone().requires_grad_())
    assert torch.autograd.grad(tied, x)[0].isfinite().all()


def test_training_raises_the_correlation() -> None:
    x, y = correlated_views(300, 6, 6, dtype=torch.float32)
    network = torch.nn.Linear(6, 2)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.02)
    losses = []
    for _ in range(50):
        loss = TraceNormLoss()(network(x), y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.1


def test_bad_arguments() -> None:
    with pytest.raises(InputError, match="'max'"):
        TraceNormLoss(reduction="max")  # type: ignore[arg-type]
    for k in (0, 1.5):
        with pytest.raises(InputError, match="k must be None or a whole number of at least 1"):
            TraceNormLoss(k=k)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="ridge"):
        TraceNormLoss(ridge=-1)
    with pytest.raises(InputError, match="k = 5 correlations were asked for, but the views have 2"):
        TraceNormLoss(k=5)(torch.randn(9, 3), torch.randn(9, 2))
    with pytest.raises(InputError, match="at least 2 samples"):
        TraceNormLoss()(torch.randn(1, 3), torch.randn(1, 3))


def test_mixed_precisions_give_the_finer() -> None:
    x, y = correlated_views(50, 3, 3)
    assert TraceNormLoss()(x, y.float()).dtype == torch.float64
    assert TraceNormLoss()(x.float(), y).dtype == torch.float64
