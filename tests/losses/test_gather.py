"""Losses with gather=True: two processes have the loss and the gradients of one."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ccal.cca import CCALayer
from ccal.errors import InputError
from ccal.losses import InfoNCELoss, PairwiseRankingLoss, SigmoidLoss, TraceNormLoss
from tests.reference import correlated_views

WAYS = ("x->y", "y->x", "both")
LOSSES: dict[str, Callable[..., nn.Module]] = {
    "sigmoid": lambda **more: SigmoidLoss(scale=2.0, bias=-1.0, **more).double()
}
for way in WAYS:
    LOSSES[f"infonce {way}"] = lambda way=way, **more: InfoNCELoss(
        temperature=0.3, learnable=True, direction=way, **more
    ).double()
for way, negatives, reduction in itertools.product(WAYS, ("all", "hardest"), ("mean", "sum")):
    LOSSES[f"ranking {way} {negatives} {reduction}"] = (
        lambda way=way, negatives=negatives, reduction=reduction, **more: PairwiseRankingLoss(
            margin=0.4, direction=way, negatives=negatives, reduction=reduction, **more
        )
    )

N, LABELS = 60, torch.arange(60) % 23
SHARES = {"uneven": (slice(0, 17), slice(17, N)), "one idle": (slice(0, 0), slice(0, N))}


class Model(nn.Module):
    """Two towers and, if it has one, a CCA layer."""

    def __init__(self, layer: bool) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.f, self.g = nn.Linear(6, 4).double(), nn.Linear(5, 4).double()
        self.layer = CCALayer(4, ridge=0.1) if layer else None

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        u, v = self.f(x), self.g(y)
        return (u, v) if self.layer is None else self.layer(u, v)


def step(model: nn.Module, loss: nn.Module, *batch: Tensor) -> dict[str, Any]:
    """The loss, and the gradients of both modules' parameters."""
    x, y, *labels = batch
    value = loss(*model(x, y), *labels)
    value.backward()
    gradients = [p.grad for m in (model, loss) for p in m.parameters()]
    return {"loss": value.detach(), "gradients": gradients}


def batch(labelled: bool) -> tuple[Tensor, ...]:
    x, y = correlated_views(N, 6, 5)
    return (x, y, LABELS) if labelled else (x, y)


CASES = list(itertools.product(LOSSES, (False, True), (False, True), SHARES))


def on_a_rank(rank: int) -> dict[Any, Any]:
    results: dict[Any, Any] = {}
    for name, labelled, layer, shares in CASES:
        model = DistributedDataParallel(Model(layer))
        own = [part[SHARES[shares][rank]] for part in batch(labelled)]
        found = step(model, LOSSES[name](gather=True), *own)
        results[name, labelled, layer, shares] = found
    own = [part[SHARES["uneven"][rank]] for part in batch(False)]
    results["trace norm"] = step(DistributedDataParallel(Model(False)), TraceNormLoss(), *own)
    leaf = own[0].clone().requires_grad_()
    with torch.no_grad():
        results["no gradient"] = SigmoidLoss(gather=True)(leaf, leaf)
    half = [part.half() for part in own]
    results["half"] = InfoNCELoss(gather=True)(half[0][:, :5], half[1])
    plain = InfoNCELoss()(own[0][:, :5], own[1])
    results["own"] = plain
    refused = []
    x, y = (torch.randn(3, 4, dtype=torch.float64) for _ in range(2))
    labels = torch.arange(3)
    wrong: list[tuple[Any, ...]] = [
        (x, y[:2]),
        (x, y, labels),
        (x[:, :3], y[:, :3]),
        (x.float(), y.float()),
        (x.numpy(), y),
    ]
    for bad in wrong:
        with pytest.raises(InputError) as caught:
            PairwiseRankingLoss(gather=True)(*(bad if rank else (x, y)))
        refused.append(str(caught.value))
    with pytest.raises(InputError, match="x and y are empty"):
        PairwiseRankingLoss(gather=True)(x[:0], y[:0])
    results["refused"] = refused
    return results


@pytest.fixture(scope="module")
def ranks(on_two_ranks: Callable[..., list[Any]]) -> list[dict[Any, Any]]:
    return on_two_ranks(on_a_rank)


@pytest.mark.parametrize("layer", [False, True], ids=["alone", "with the CCA layer"])
@pytest.mark.parametrize("name", LOSSES)
def test_two_ranks_are_one(name: str, layer: bool, ranks: list[dict[Any, Any]]) -> None:
    for labelled, shares in itertools.product((False, True), SHARES):
        expected = step(Model(layer), LOSSES[name](), *batch(labelled))
        for rank in ranks:
            torch.testing.assert_close(
                rank[name, labelled, layer, shares], expected, rtol=1e-9, atol=1e-11
            )


def test_the_trace_norm_sees_all_ranks_as_it_is(ranks: list[dict[Any, Any]]) -> None:
    expected = step(Model(False), TraceNormLoss(), *batch(False))
    for rank in ranks:
        torch.testing.assert_close(rank["trace norm"], expected, rtol=1e-9, atol=1e-11)


def test_no_gradient_and_half_precision(ranks: list[dict[Any, Any]]) -> None:
    x, y = batch(False)
    same, half = SigmoidLoss()(x, x), InfoNCELoss()(x[:, :5].half(), y.half())
    for rank in ranks:
        torch.testing.assert_close(rank["no gradient"], same.detach())
        assert rank["half"].dtype == torch.float32
        torch.testing.assert_close(rank["half"], half)


def test_without_gather_a_rank_sees_its_own_pairs(ranks: list[dict[Any, Any]]) -> None:
    x, y = batch(False)
    for rank, share in zip(ranks, SHARES["uneven"], strict=True):
        torch.testing.assert_close(rank["own"], InfoNCELoss()(x[share, :5], y[share]))


def test_a_batch_that_one_rank_refuses_is_refused_on_both(ranks: list[dict[Any, Any]]) -> None:
    first, second = (rank["refused"] for rank in ranks)
    assert "another rank" in first[0]
    assert "x has 3 rows and y has 2" in second[0]
    assert first[1] == second[1]
    assert "rank 0: 4 dimensions in float64, no labels; rank 1: 4 dim" in first[1]
    assert "rank 1: 3 dimensions" in first[2]
    assert "rank 1: 4 dimensions in float32" in second[3]
    assert "another rank" in first[4]
    assert "x must be a torch.Tensor" in second[4]


@pytest.mark.parametrize("name", LOSSES)
def test_without_a_process_group_gather_changes_nothing(name: str) -> None:
    x, y, labels = batch(True)
    plain, gathering = (
        step(Model(True), LOSSES[name](gather=gather), x, y, labels) for gather in (False, True)
    )
    torch.testing.assert_close(gathering, plain, rtol=0, atol=0)
    assert "gather=True" in repr(LOSSES[name](gather=True))
    assert "gather" not in repr(LOSSES[name]())
