"""What holds for every loss: precision, autocast, compilation, and errors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ccal.errors import InputError
from ccal.losses import InfoNCELoss, PairwiseRankingLoss, SigmoidLoss
from tests.losses.references import HALF, assert_same, loss_and_grads, pairs

KINDS: list[Any] = list(itertools.product(("x->y", "y->x", "both"), ("all", "hardest")))
RANKING = [partial(PairwiseRankingLoss, direction=way, negatives=which) for way, which in KINDS]
LOSSES: list[Callable[[], nn.Module]] = [InfoNCELoss, SigmoidLoss, *RANKING]
every_loss = pytest.mark.parametrize("make", LOSSES, ids=lambda make: str(make()))


@every_loss
@pytest.mark.parametrize("dtype", HALF)
def test_half_precision_computes_in_float32(
    make: Callable[[], nn.Module], dtype: torch.dtype
) -> None:
    x, y = pairs(50, 16, dtype=dtype)
    value, *gradients = loss_and_grads(make(), x, y)
    wide = (view.detach().float().requires_grad_() for view in (x, y))
    expected, *exact = loss_and_grads(make(), *wide)
    assert value.dtype == torch.float32
    assert value == expected
    assert_same(tuple(gradients), tuple(gradient.to(dtype) for gradient in exact), 0)


@every_loss
def test_autocast_changes_nothing(make: Callable[[], nn.Module]) -> None:
    x, y = pairs(50, 16, dtype=torch.float32)
    expected = loss_and_grads(make(), x, y)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_same(loss_and_grads(make(), x, y), expected, 0)


@pytest.mark.parametrize(
    ("loss", "labelled", "tolerance"),
    [
        (InfoNCELoss(), False, 1e-6),
        (InfoNCELoss(learnable=True), True, 1e-6),
        (SigmoidLoss(), False, 1e-6),
        (SigmoidLoss(), True, 1e-6),
        (PairwiseRankingLoss(negatives="hardest"), True, 0.0),
        (PairwiseRankingLoss(direction="y->x"), True, 0.0),
        (PairwiseRankingLoss(direction="both"), False, 0.0),
    ],
    ids=str,
)
def test_compiles_without_graph_breaks(loss: nn.Module, labelled: bool, tolerance: float) -> None:
    torch.compiler.reset()
    compiled: Callable[..., Tensor] = torch.compile(loss, backend="aot_eager", fullgraph=True)
    for n in (7, 9):
        x, y = pairs(n, dtype=torch.float32)
        labels = torch.arange(n) // 2 if labelled else None
        assert_same(
            loss_and_grads(partial(compiled, labels=labels), x, y),
            loss_and_grads(partial(loss, labels=labels), x, y),
            tolerance,
        )
        without = compiled(x.detach(), y, labels).item()
        assert without == pytest.approx(loss(x.detach(), y, labels).item(), rel=1e-6)


@pytest.mark.parametrize(
    ("loss", "options", "message"),
    [
        (InfoNCELoss, {"temperature": 0.0}, r"temperature must .* greater than 0, .*0\.0"),
        (InfoNCELoss, {"temperature": math.inf}, r"temperature must be a finite number"),
        (InfoNCELoss, {"temperature": 0.001, "learnable": True}, r"at least 0\.01 .* got 0\.001"),
        (InfoNCELoss, {"direction": "up"}, r"one of 'x->y', 'y->x', 'both', .*'up'"),
        (SigmoidLoss, {"scale": 0.0}, r"scale must be a finite number greater than 0, .*0\.0"),
        (SigmoidLoss, {"bias": math.nan}, r"bias must be a finite number, .*nan"),
        (PairwiseRankingLoss, {"direction": "xy"}, r"one of 'x->y', 'y->x', 'both', .*'xy'"),
        (PairwiseRankingLoss, {"reduction": "none"}, r"one of 'mean', 'sum', .*'none'"),
        (PairwiseRankingLoss, {"negatives": "semi"}, r"one of 'all', 'hardest', .*'semi'"),
        (PairwiseRankingLoss, {"margin": -0.1}, r"margin must .* of at least 0, .*-0\.1"),
        (PairwiseRankingLoss, {"margin": math.nan}, r"margin must be a finite number"),
    ],
)
def test_bad_options(loss: Callable[..., nn.Module], options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        loss(**options)


@pytest.mark.parametrize("make", [InfoNCELoss, SigmoidLoss, PairwiseRankingLoss])
@pytest.mark.parametrize(
    ("x", "y", "labels", "message"),
    [
        (torch.ones(3, 2), torch.ones(4, 2), None, "3 rows and y has 4"),
        (torch.ones(3, 2), torch.ones(3, 5), None, r"\(3, 2\) and \(3, 5\)"),
        (torch.ones(3), torch.ones(3), None, r"matrix .* \(3,\)"),
        (torch.ones(3, 2, dtype=torch.long), torch.ones(3, 2), None, "floating point"),
        (torch.ones(0, 2), torch.ones(0, 2), None, r"empty: got shape \(0, 2\)"),
        (torch.ones(3, 2), torch.ones(3, 2), torch.arange(4), r"shape \(3,\), got \(4,\)"),
        (torch.ones(3, 2), torch.ones(3, 2), torch.ones(3), "labels must be integers"),
    ],
)
def test_bad_inputs(
    make: Callable[[], nn.Module], x: Tensor, y: Tensor, labels: Tensor | None, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        make()(x, y, labels)


@pytest.mark.parametrize(
    ("loss", "text"),
    [
        (InfoNCELoss(), "InfoNCELoss(temperature=0.07, learnable=False, direction='both')"),
        (SigmoidLoss(), "SigmoidLoss(scale=10, bias=-10)"),
        (
            PairwiseRankingLoss(margin=0.2, negatives="hardest"),
            "PairwiseRankingLoss(margin=0.2, direction='x->y', reduction='mean', "
            "negatives='hardest')",
        ),
    ],
)
def test_prints_its_options(loss: nn.Module, text: str) -> None:
    assert repr(loss) == text
