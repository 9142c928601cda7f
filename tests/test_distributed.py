"""Two real processes that talk over gloo give the result of one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ccal.cca import CCALayer, Moments
from ccal.distributed import all_gather, all_reduce_sum
from ccal.errors import InputError
from ccal.losses import PairwiseRankingLoss, TraceNormLoss
from tests.reference import correlated_views, relative_error

VARIANTS: dict[str, dict[str, Any]] = {
    "aligned": {},
    "canonical": {"coordinates": "canonical"},
    "running": {"momentum": 0.3},
    "relative ridge": {"ridge": 0.2, "relative_ridge": True},
    "weighted": {"power": 1.0, "k": 8},
}


def towers() -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(1)
    return nn.Linear(12, 10).double(), nn.Linear(11, 10).double()


def objective(x: Tensor, y: Tensor, arguments: dict[str, Any]) -> tuple[Tensor, list[Tensor]]:
    """Two steps through towers, layer and loss; the second step meets running statistics."""
    f, g = towers()
    layer = CCALayer(10, **arguments)
    layer(f(x.flip(0)), g(y.flip(0)))
    xs, ys = layer(f(x), g(y))
    loss = PairwiseRankingLoss(direction="both")(all_gather(xs), all_gather(ys))
    loss = loss + 0.1 * TraceNormLoss()(f(x), g(y))
    parameters = [*f.parameters(), *g.parameters()]
    return loss, list(torch.autograd.grad(loss, parameters))


def apart(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Samples of one rank far from those of the other, in float32."""
    x = x.clone()
    x[:500] += 1000
    return x.float(), y.float()


def float32_gradient(x: Tensor, y: Tensor, mine: slice) -> Tensor:
    leaf = x[mine].clone().requires_grad_()
    xs, ys = CCALayer(12, 11)(leaf, y[mine])
    similarity = (nn.functional.normalize(xs) * nn.functional.normalize(ys)).sum()
    return torch.autograd.grad(similarity, leaf)[0]


def refusal(step: Callable[[], object]) -> str:
    with pytest.raises(InputError) as caught:
        step()
    return str(caught.value)


def one_of_two(rank: int) -> dict[str, Any]:
    x, y = correlated_views(1000, 12, 11)
    mine = slice(0, 500) if rank == 0 else slice(500, 1000)
    results: dict[str, Any] = {}
    for name, arguments in VARIANTS.items():
        loss, gradients = objective(x[mine], y[mine], arguments)
        # Each rank computes the whole loss; the sum over ranks counts it twice.
        results[name] = loss.detach(), [all_reduce_sum(g) / 2 for g in gradients]
    uneven = slice(0, 300) if rank == 0 else slice(300, 1000)
    moments = Moments.of(x[uneven], y[uneven]).all_reduce()
    results["moments"] = moments.count, moments.covariances().xy
    results["refit"] = CCALayer(12, 11).refit((x[uneven], y[uneven])).state_dict()
    results["gathered"] = all_gather(x[uneven])
    nothing = CCALayer(12, 11).refit([(x, y)] if rank else [])
    results["all at one"] = copy.deepcopy(nothing.state_dict())
    alone = slice(0, 1000) if rank else slice(0)
    nothing(x[alone], y[alone])
    results["eval without samples"] = nothing.eval().project_x(x)
    results["apart"] = float32_gradient(*apart(x, y), mine)
    broken = x[mine].clone()
    broken[0, 0] = torch.nan if rank else 0
    layer = CCALayer(12, 11)
    results["errors"] = [
        refusal(lambda: layer(broken, y[mine])),
        refusal(lambda: layer.refit([(x, y), (broken, y[mine])])),
    ]
    return results


@pytest.fixture(scope="module")
def ranks(on_two_ranks: Callable[..., list[Any]]) -> list[dict[str, Any]]:
    return on_two_ranks(one_of_two)


@pytest.mark.parametrize("name", VARIANTS)
def test_two_ranks_of_500_are_one_rank_of_1000(name: str, ranks: list[dict[str, Any]]) -> None:
    x, y = correlated_views(1000, 12, 11)
    # The first step of a rank sees its own samples reversed; the order of samples does not matter.
    loss, gradients = objective(x, y, VARIANTS[name])
    for rank in ranks:
        assert abs(rank[name][0].item() - loss.item()) < 1e-6
        for value, expected in zip(rank[name][1], gradients, strict=True):
            assert (value - expected).abs().max() < 1e-6


def test_uneven_ranks_merge_exactly(ranks: list[dict[str, Any]]) -> None:
    x, y = correlated_views(1000, 12, 11)
    whole = Moments.of(x, y).covariances().xy
    layer = CCALayer(12, 11).refit((x, y))
    for rank in ranks:
        assert rank["moments"][0] == 1000
        torch.testing.assert_close(rank["moments"][1], whole, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(rank["refit"], layer.state_dict())
        assert torch.equal(rank["gathered"], x)


def test_a_rank_may_be_without_samples(ranks: list[dict[str, Any]]) -> None:
    x, y = correlated_views(1000, 12, 11)
    layer = CCALayer(12, 11).refit((x, y))
    for rank in ranks:
        torch.testing.assert_close(rank["all at one"], layer.state_dict())
        torch.testing.assert_close(rank["eval without samples"], layer.eval().project_x(x))


def test_ranks_whose_samples_lie_far_apart_in_float32(ranks: list[dict[str, Any]]) -> None:
    x, y = apart(*correlated_views(1000, 12, 11))
    expected = float32_gradient(x.double(), y.double(), slice(None))
    found = torch.cat([rank["apart"] for rank in ranks])
    assert relative_error(found, expected) < 1e-4


def test_bad_pairs_of_one_rank_are_refused_on_both(ranks: list[dict[str, Any]]) -> None:
    assert all("another rank" in error for error in ranks[0]["errors"])
    assert all("x contains 1 NaN" in error for error in ranks[1]["errors"])
