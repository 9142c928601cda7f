from __future__ import annotations

import itertools
import sys
from functools import partial
from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ccal.errors import CcalError
from ccal.losses import PairwiseRankingLoss, ranking
from ccal.losses.common import Direction
from tests.fresh import run
from tests.losses.references import (
    LABELS,
    assert_finite,
    assert_same,
    embeddings,
    is_negative,
    loss_and_grads,
    pairs,
    scores,
)

Reduction = Literal["mean", "sum"]
Negatives = Literal["all", "hardest"]

DIRECTIONS: tuple[Direction, ...] = ("x->y", "y->x", "both")
REDUCTIONS: tuple[Reduction, ...] = ("mean", "sum")
NEGATIVES: tuple[Negatives, ...] = ("all", "hardest")

every_option = pytest.mark.parametrize(
    ("direction", "reduction", "negatives", "labels"),
    list(itertools.product(DIRECTIONS, REDUCTIONS, NEGATIVES, (None, LABELS))),
    ids=lambda value: "labels" if isinstance(value, Tensor) else str(value),
)
every_kind = pytest.mark.parametrize(
    ("direction", "negatives"), list(itertools.product(DIRECTIONS, NEGATIVES))
)


def by_loops(
    x: Tensor,
    y: Tensor,
    margin: float,
    direction: str,
    reduction: str,
    negatives: str,
    labels: Tensor | None,
) -> Tensor:
    if direction == "both":
        return by_loops(x, y, margin, "x->y", reduction, negatives, labels) + by_loops(
            x, y, margin, "y->x", reduction, negatives, labels
        )
    s = scores(x, y)
    total, terms = torch.zeros((), dtype=torch.float64), 0
    for i in range(len(x)):
        hinges = [
            (margin - s[i][i] + (s[i][j] if direction == "x->y" else s[j][i])).clamp_min(0)
            for j in range(len(x))
            if is_negative(i, j, labels)
        ]
        if negatives == "hardest":
            hinges = [max(hinges)]
        total = total + sum(hinges)
        terms += len(hinges)
    return total / terms if reduction == "mean" else total


def plain(x: Tensor, y: Tensor, margin: float = 0.5, labels: Tensor | None = None) -> Tensor:
    """The default options as a few matrix operations."""
    s = torch.nn.functional.normalize(x) @ torch.nn.functional.normalize(y).T
    group = torch.arange(len(x)) if labels is None else labels
    others = group[:, None] != group
    return (torch.relu(s - s.diagonal()[:, None] + margin) * others).sum() / others.sum()


@every_option
def test_equals_the_double_loop(
    direction: Direction, reduction: Reduction, negatives: Negatives, labels: Tensor | None
) -> None:
    x, y = pairs()
    for margin in (0.2, 0.5, 1.5):
        loss = PairwiseRankingLoss(
            margin=margin, direction=direction, reduction=reduction, negatives=negatives
        )
        slow = partial(
            by_loops,
            margin=margin,
            direction=direction,
            reduction=reduction,
            negatives=negatives,
            labels=labels,
        )
        assert_same(loss_and_grads(partial(loss, labels=labels), x, y), loss_and_grads(slow, x, y))


@every_option
def test_gradcheck(
    direction: Direction, reduction: Reduction, negatives: Negatives, labels: Tensor | None
) -> None:
    loss = PairwiseRankingLoss(direction=direction, reduction=reduction, negatives=negatives)
    x, y = pairs()
    s = torch.nn.functional.normalize(x) @ torch.nn.functional.normalize(y).T
    margins = s - s.diagonal()[:, None] + 0.5, s - s.diagonal() + 0.5
    assert min(m.detach().abs().min() for m in margins) > 1e-4, "a hinge lies at its kink"
    assert torch.autograd.gradcheck(lambda x, y: loss(x, y, labels), (x, y))


@every_kind
def test_the_other_direction_swaps_the_views(direction: Direction, negatives: Negatives) -> None:
    swapped: dict[Direction, Direction] = {"x->y": "y->x", "y->x": "x->y", "both": "both"}
    x, y = pairs(20)
    value, gx, gy = loss_and_grads(
        PairwiseRankingLoss(direction=direction, negatives=negatives), x, y
    )
    again, hy, hx = loss_and_grads(
        PairwiseRankingLoss(direction=swapped[direction], negatives=negatives), y, x
    )
    assert_same((value, gx, gy), (again, hx, hy))


@pytest.mark.parametrize("match", [0.05, 0.3, 0.5, 0.7, 0.95])
@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_float32_at_every_share_of_active_hinges(
    match: float, labelled: bool, direction: Direction
) -> None:
    """From nearly all hinges active to nearly none."""
    x, y = pairs(300, 96, (match**-2 - 1) ** 0.5, torch.float32)
    labels = torch.randint(0, 60, (300,)) if labelled else None
    x64, y64 = (v.detach().double().requires_grad_() for v in (x, y))
    forward = loss_and_grads(lambda x, y: plain(x, y, labels=labels), x64, y64)
    backward = loss_and_grads(lambda y, x: plain(y, x, labels=labels), y64, x64)
    reference = {
        "x->y": forward,
        "y->x": (backward[0], backward[2], backward[1]),
        "both": (forward[0] + backward[0], forward[1] + backward[2], forward[2] + backward[1]),
    }[direction]
    loss = PairwiseRankingLoss(direction=direction)
    value, gx, gy = loss_and_grads(partial(loss, labels=labels), x, y)
    torch.testing.assert_close(value.double(), reference[0], rtol=2e-6, atol=1e-9)
    for ours, exact in ((gx, reference[1]), (gy, reference[2])):
        # A single hinge that rounds to the other side of its kink moves a gradient by this much.
        assert (ours - exact).norm() < 1e-3 * exact.norm() + 1e-8


@settings(max_examples=150, deadline=None)
@given(
    embeddings(),
    st.sampled_from(DIRECTIONS),
    st.sampled_from(REDUCTIONS),
    st.sampled_from(NEGATIVES),
    st.booleans(),
)
def test_always_finite(
    views: tuple[Tensor, Tensor],
    direction: Direction,
    reduction: Reduction,
    negatives: Negatives,
    labelled: bool,
) -> None:
    x, y = views
    labels = torch.arange(len(x)) // 3 if labelled else None
    loss = PairwiseRankingLoss(direction=direction, reduction=reduction, negatives=negatives)
    assert_finite(lambda x, y: loss(x, y, labels), x, y)
    assert loss(x, y, labels) >= 0


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 40), st.integers(2, 12), st.floats(-6, 6), st.floats(-6, 6))
def test_does_not_depend_on_the_scale(n: int, k: int, a: float, b: float) -> None:
    torch.manual_seed(n)
    x, y = pairs(n, k)
    big_x, big_y = (v.detach() * 10**e for v, e in ((x, a), (y, b)))
    big_x.requires_grad_()
    big_y.requires_grad_()
    value, gx, gy = loss_and_grads(PairwiseRankingLoss(), x, y)
    again, hx, hy = loss_and_grads(PairwiseRankingLoss(), big_x, big_y)
    assert_same((value, gx, gy), (again, hx * 10**a, hy * 10**b), 1e-9)


@every_kind
def test_one_pair_costs_nothing(direction: Direction, negatives: Negatives) -> None:
    x, y = pairs(1)
    loss = PairwiseRankingLoss(direction=direction, negatives=negatives)
    for value in loss_and_grads(loss, x, y):
        assert not value.any()


@every_kind
def test_one_label_for_all_costs_nothing(direction: Direction, negatives: Negatives) -> None:
    x, y = pairs()
    loss = PairwiseRankingLoss(direction=direction, negatives=negatives)
    for value in loss_and_grads(lambda x, y: loss(x, y, torch.ones(7, dtype=torch.long)), x, y):
        assert not value.any()


@every_kind
def test_identical_embeddings_cost_the_margin(direction: Direction, negatives: Negatives) -> None:
    x = torch.ones(30, 5, requires_grad=True)
    value, gx, gy = loss_and_grads(
        PairwiseRankingLoss(margin=0.3, direction=direction, negatives=negatives),
        x,
        torch.ones(30, 5, requires_grad=True),
    )
    assert value.item() == pytest.approx(0.6 if direction == "both" else 0.3, rel=5e-6)
    assert max(gx.abs().max(), gy.abs().max()) < 1e-6


@every_kind
def test_zero_vectors_get_no_gradient(direction: Direction, negatives: Negatives) -> None:
    x, y = pairs(10)
    x.data[3] = 0
    y.data[5] = 0
    loss = PairwiseRankingLoss(margin=1.0, direction=direction, negatives=negatives)
    _, gx, gy = loss_and_grads(loss, x, y)
    assert not gx[3].any()
    assert not gy[5].any()
    assert gx.any()
    assert gy.any()


@pytest.mark.parametrize(("noise", "k"), [(0.7, 4), (0.1, 96)])
@every_kind
def test_a_nan_is_not_hidden(
    direction: Direction, negatives: Negatives, noise: float, k: int
) -> None:
    for view in range(2):
        x, y = pairs(40, k, noise, torch.float32)
        (x, y)[view].data[2, 1] = torch.nan
        loss = PairwiseRankingLoss(direction=direction, negatives=negatives)
        assert loss(x, y).isnan()
        assert loss(x.detach(), y.detach()).isnan()


@pytest.mark.parametrize("labelled", [False, True])
@every_kind
def test_blocks_change_nothing(
    direction: Direction, negatives: Negatives, labelled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = pairs(700, 8)
    labels = torch.randint(0, 90, (700,)) if labelled else None
    loss = PairwiseRankingLoss(direction=direction, negatives=negatives)
    whole = loss_and_grads(partial(loss, labels=labels), x, y)
    monkeypatch.setattr(ranking, "BLOCK", 1)
    assert_same(loss_and_grads(partial(loss, labels=labels), x, y), whole)
    torch.testing.assert_close(loss(x.detach(), y.detach(), labels), whole[0])


@every_kind
def test_only_the_wanted_gradients(direction: Direction, negatives: Negatives) -> None:
    x, y = pairs(20)
    loss = PairwiseRankingLoss(direction=direction, negatives=negatives)
    value, gx, gy = loss_and_grads(loss, x, y)
    x_only, y_only = loss(x, y.detach()), loss(x.detach(), y)
    assert_same(
        (x_only, y_only, *torch.autograd.grad(x_only, x), *torch.autograd.grad(y_only, y)),
        (value, value, gx, gy),
    )
    assert_same((loss(x.detach(), y.detach()),), (value,))
    with torch.no_grad():
        assert not loss(x, y).requires_grad


def test_the_gradient_scales_with_the_incoming_one() -> None:
    x, y = pairs()
    value, gx, gy = loss_and_grads(PairwiseRankingLoss(), x, y)
    assert_same(
        loss_and_grads(lambda x, y: -3 * PairwiseRankingLoss()(x, y), x, y),
        (-3 * value, -3 * gx, -3 * gy),
    )


def test_mixed_precision_keeps_each_gradient_in_its_own() -> None:
    x, y = pairs(dtype=torch.bfloat16)[0], pairs()[1]
    value, gx, gy = loss_and_grads(PairwiseRankingLoss(), x, y)
    assert (value.dtype, gx.dtype, gy.dtype) == (torch.float64, torch.bfloat16, torch.float64)


def test_the_operator_is_registered_correctly() -> None:
    x, y = (v.detach() for v in pairs())
    torch.library.opcheck(
        ranking.operator, (x, y, LABELS, [2, 5], 0.5, "both", True, False, True, False)
    )


@pytest.mark.parametrize("hardest", [False, True])
@pytest.mark.parametrize("direction", ["x->y", "y->x", "both"])
def test_parts_of_the_rows_add_up(
    direction: str, hardest: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranking, "BLOCK", 1)  # blocks of 256 rows
    x, y = (v.detach() for v in pairs(600))
    labels = torch.arange(600) % 50

    def found(rows: list[int] | None) -> tuple[Tensor, ...]:
        options = (0.5, direction, True, hardest, True, True)
        return ranking._loss_and_gradients(x, y, labels, rows, *options)

    parts = [found(rows) for rows in ([0, 300], [300, 300], [300, 600])]
    assert_same(tuple(map(sum, zip(*parts, strict=True))), found(None), 1e-12)  # type: ignore[arg-type]


def test_gradients_of_a_second_backward_are_its_own() -> None:
    x, y = pairs()
    loss = PairwiseRankingLoss()(x, y)
    loss.backward(retain_graph=True)
    assert x.grad is not None
    first = x.grad.clone()
    (2 * loss).backward()
    torch.testing.assert_close(x.grad, 3 * first)


def test_refuses_to_be_differentiated_twice() -> None:
    x, y = pairs()
    with pytest.raises(CcalError, match="differentiated twice"):
        torch.autograd.grad(PairwiseRankingLoss()(x, y), x, create_graph=True)


MEMORY = """
import re, sys, torch
from ccal.losses import PairwiseRankingLoss
from tests.losses.test_ranking import plain

loss = plain if sys.argv[1] == "plain" else PairwiseRankingLoss(direction=sys.argv[1])

def run(n):
    x, y = (torch.randn(n, 64, requires_grad=True) for _ in range(2))
    loss(x, y).backward()
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])

before = run(300)
print((run(3000) - before) * 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
def test_peak_memory_is_below_a_few_score_matrices() -> None:
    matrix = 3000 * 3000 * 4

    def peak(kind: str) -> int:
        return int(run(MEMORY, kind))

    assert peak("plain") > 3 * matrix, "the measurement does not see what it should"
    assert peak("x->y") < 2.5 * matrix
    assert peak("both") < 2.5 * matrix


def test_embeddings_whose_norm_overflows_give_nan() -> None:
    x = torch.randn(4, 3)
    assert PairwiseRankingLoss()(1e15 * x, x).isfinite()
    assert PairwiseRankingLoss()(1e25 * x, x).isnan()
