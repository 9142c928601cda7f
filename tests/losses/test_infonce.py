from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ccal.losses import InfoNCELoss
from ccal.losses.common import Direction
from tests.compiler import needs_cpp
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

DIRECTIONS: tuple[Direction, ...] = ("x->y", "y->x", "both")


def by_loops(
    x: Tensor, y: Tensor, temperature: float, direction: str, labels: Tensor | None
) -> Tensor:
    if direction == "both":
        one, other = (by_loops(x, y, temperature, way, labels) for way in ("x->y", "y->x"))
        return (one + other) / 2
    s = scores(x, y)
    total = torch.zeros((), dtype=torch.float64)
    for i in range(len(x)):
        row = [s[i][j] if direction == "x->y" else s[j][i] for j in range(len(x))]
        chosen = [row[j] for j in range(len(x)) if j == i or is_negative(i, j, labels)]
        total = total - (row[i] / temperature).exp().log()
        total = total + torch.stack([(c / temperature).exp() for c in chosen]).sum().log()
    return total / len(x)


@pytest.mark.parametrize("labels", [None, LABELS], ids=["free", "labels"])
@pytest.mark.parametrize("learnable", [False, True])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("temperature", [0.07, 1.0])
def test_equals_the_double_loop(
    temperature: float, direction: Direction, learnable: bool, labels: Tensor | None
) -> None:
    x, y = pairs()
    loss = InfoNCELoss(temperature=temperature, direction=direction, learnable=learnable).double()
    if loss.log_scale is not None:
        loss.log_scale.data.fill_(-math.log(temperature))
    assert_same(
        loss_and_grads(lambda x, y: loss(x, y, labels), x, y),
        loss_and_grads(lambda x, y: by_loops(x, y, temperature, direction, labels), x, y),
        1e-10,
    )


def test_gradcheck_with_the_temperature() -> None:
    loss = InfoNCELoss(learnable=True).double()
    assert loss.log_scale is not None
    x, y = pairs()
    assert torch.autograd.gradcheck(lambda x, y, _: loss(x, y, LABELS), (x, y, loss.log_scale))


def test_can_be_differentiated_twice() -> None:
    assert torch.autograd.gradgradcheck(InfoNCELoss(temperature=0.5), pairs(4, 3))


def test_equals_cross_entropy() -> None:
    x, y = pairs(50, 8)
    unit_x, unit_y = (torch.nn.functional.normalize(v) for v in (x, y))
    expected = torch.nn.functional.cross_entropy(unit_x @ unit_y.T / 0.25, torch.arange(50))
    assert_same((InfoNCELoss(temperature=0.25, direction="x->y")(x, y),), (expected,))


@settings(max_examples=100, deadline=None)
@given(
    embeddings(float16_from=1.0), st.sampled_from(DIRECTIONS), st.booleans(), st.floats(0.01, 10)
)
def test_always_finite(
    views: tuple[Tensor, Tensor], direction: Direction, labelled: bool, temperature: float
) -> None:
    x, y = views
    labels = torch.arange(len(x)) // 3 if labelled else None
    loss = InfoNCELoss(temperature=temperature, direction=direction)
    assert_finite(lambda x, y: loss(x, y, labels), x, y)


def test_one_pair_and_one_label_cost_nothing() -> None:
    assert InfoNCELoss()(*pairs(1)).item() == pytest.approx(0)
    assert InfoNCELoss()(*pairs(7), torch.zeros(7, dtype=torch.long)).item() == pytest.approx(0)


def test_a_learned_temperature_stops_at_its_limit_and_can_return() -> None:
    loss = InfoNCELoss(temperature=0.0101, learnable=True)
    x = torch.eye(4)
    optimiser = torch.optim.SGD(loss.parameters(), lr=1e3)
    assert loss.log_scale is not None
    loss.log_scale.data.fill_(9.0)
    loss(x, x.roll(1, 0)).backward()
    assert loss.log_scale.exp().item() == pytest.approx(100)
    optimiser.step()
    assert loss.log_scale.exp().item() < 50


def test_a_fixed_temperature_is_no_parameter() -> None:
    assert not list(InfoNCELoss().parameters())
    assert [p.item() for p in InfoNCELoss(learnable=True).parameters()] == pytest.approx(
        [-math.log(0.07)]
    )


@needs_cpp
def test_compiled_twice_before_one_backward() -> None:
    x, y = pairs(dtype=torch.float32)
    loss = InfoNCELoss(learnable=True)
    torch.compiler.reset()
    compiled = torch.compile(loss)
    (compiled(x, y) + compiled(y, x)).backward()
    twice = loss.log_scale.grad.clone()  # type: ignore[union-attr]
    loss.zero_grad()
    loss(x, y).backward()
    torch.testing.assert_close(twice, 2 * loss.log_scale.grad)  # type: ignore[union-attr,operator]


def test_a_compiled_loss_holds_the_limit_too() -> None:
    x, y = pairs(dtype=torch.float32)
    loss = InfoNCELoss(learnable=True)
    with torch.no_grad():
        loss.log_scale.fill_(9.0)  # type: ignore[union-attr]
    torch.compiler.reset()
    compiled = torch.compile(loss, backend="aot_eager")(x, y)
    torch.testing.assert_close(compiled, InfoNCELoss(temperature=0.01)(x, y))
    compiled.backward()
    assert loss.log_scale.grad != 0  # type: ignore[union-attr]
