from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ccal.losses import SigmoidLoss
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


def by_loops(x: Tensor, y: Tensor, scale: float, bias: float, labels: Tensor | None) -> Tensor:
    s = scores(x, y)
    total = torch.zeros((), dtype=torch.float64)
    for i in range(len(x)):
        for j in range(len(x)):
            if i == j or is_negative(i, j, labels):
                sign = 1 if i == j else -1
                total = total - torch.sigmoid(sign * (scale * s[i][j] + bias)).log()
    return total / len(x)


@pytest.mark.parametrize("labels", [None, LABELS], ids=["free", "labels"])
@pytest.mark.parametrize(("scale", "bias"), [(10.0, -10.0), (2.0, 0.5)])
def test_equals_the_double_loop(scale: float, bias: float, labels: Tensor | None) -> None:
    x, y = pairs()
    loss = SigmoidLoss(scale=scale, bias=bias).double()
    loss.log_scale.data.fill_(math.log(scale))
    assert_same(
        loss_and_grads(lambda x, y: loss(x, y, labels), x, y),
        loss_and_grads(lambda x, y: by_loops(x, y, scale, bias, labels), x, y),
        1e-10,
    )


def test_gradcheck_with_its_parameters() -> None:
    loss = SigmoidLoss().double()
    x, y = pairs()
    assert torch.autograd.gradcheck(
        lambda x, y, *_: loss(x, y, LABELS), (x, y, loss.log_scale, loss.bias)
    )


def test_symmetric_in_the_views() -> None:
    x, y = pairs(20)
    assert_same((SigmoidLoss()(x, y),), (SigmoidLoss()(y, x),))


@settings(max_examples=100, deadline=None)
@given(embeddings(float16_from=1.0), st.booleans(), st.floats(0.1, 1000), st.floats(-1000, 1000))
def test_always_finite(
    views: tuple[Tensor, Tensor], labelled: bool, scale: float, bias: float
) -> None:
    x, y = views
    labels = torch.arange(len(x)) // 3 if labelled else None
    loss = SigmoidLoss(scale=scale, bias=bias)
    assert_finite(lambda x, y: loss(x, y, labels), x, y)


def test_starts_with_scale_10_and_bias_minus_10() -> None:
    loss = SigmoidLoss()
    assert loss.log_scale.exp().item() == pytest.approx(10)
    assert loss.bias.item() == -10
    assert len(list(loss.parameters())) == 2
