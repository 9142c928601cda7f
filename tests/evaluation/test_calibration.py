"""Chances of hits: against sums over all items, and against what is right on new pairs."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from ccal.evaluation.calibration import HEAD, Calibration, calibrate


def pairs(n: int, seed: int, noise: float = 1.2, dim: int = 24) -> tuple[Tensor, Tensor]:
    """Embeddings of pairs with a common part."""
    draw = torch.Generator().manual_seed(seed)
    meaning, x, y = (torch.randn(n, dim, generator=draw) for _ in range(3))
    return meaning + noise * x, meaning + noise * y


def cosines(x: Tensor, y: Tensor) -> Tensor:
    x, y = (view.double() / view.double().norm(dim=1, keepdim=True) for view in (x, y))
    return x @ y.mT


def diagonal(n: int) -> tuple[Tensor, Tensor]:
    return torch.arange(n), torch.arange(n)


@pytest.fixture(scope="module")
def calibration() -> Calibration:
    found = Calibration.fit(*pairs(200, seed=0), diagonal(200))
    assert found is not None
    return found


@pytest.mark.parametrize("n", [5, 40, 200, 1000])
def test_chances_are_calibrated_for_other_numbers_of_items(
    calibration: Calibration, n: int
) -> None:
    scores = cosines(*pairs(1000, seed=1))
    said, right = [], []
    for start in range(0, 1000, n):
        part = scores[start : start + n, start : start + n].sort(dim=1, descending=True)
        for row, (values, order) in enumerate(zip(part.values, part.indices, strict=True)):
            said += calibration.chances(values[:HEAD].tolist(), n)
            right += (order[:HEAD] == row).tolist()
    chances, truth = torch.tensor(said), torch.tensor(right).double()
    for low, high in ((0, 0.05), (0.05, 0.2), (0.2, 0.5), (0.5, 0.8), (0.8, 1.0)):
        here = (chances >= low) & (chances < high)
        if (count := int(here.sum())) >= 50:
            error = (chances[here].mean() - truth[here].mean()).abs()
            # Three standard errors, and a little for what 200 validation pairs cannot tell.
            assert error < 3 * math.sqrt(0.25 / count) + 0.03


def test_ten_hits_and_the_number_of_items_do_for_all_scores(calibration: Calibration) -> None:
    scores = cosines(*pairs(1000, seed=2)).sort(dim=1, descending=True).values
    exact = torch.softmax(calibration.scale * scores, dim=1)[:, 0]
    found = torch.tensor([calibration.chances(row[:HEAD].tolist(), 1000)[0] for row in scores])
    assert (found - exact).abs().mean() < 0.03


def test_chances_fall_with_rank_and_with_the_number_of_items(calibration: Calibration) -> None:
    scores = torch.linspace(0.6, 0.2, 30).tolist()
    few, many = (calibration.chances(scores, n) for n in (50, 50_000))
    assert few == sorted(few, reverse=True)
    assert all(a > b > 0 for a, b in zip(few, many, strict=True))
    # Those of the first ten do not depend on how many were asked for.
    assert calibration.chances(scores[:HEAD], 50) == pytest.approx(few[:HEAD])
    assert calibration.chances([], 50) == []
    # Nothing is more certain than the number of validation queries allows.
    assert calibration.chances([0.9], 1) == [201 / 202]


def test_several_right_items() -> None:
    x, y = pairs(200, seed=3)
    texts = y.repeat_interleave(5, 0) + 0.3 * torch.randn(1000, y.shape[1])
    rows = torch.arange(200).repeat_interleave(5), torch.arange(1000)
    found = calibrate(("image", "text"), x, texts, rows)
    assert found["image"].positives == 5
    assert found["text"].positives == 1
    assert (found["image"].queries, found["image"].candidates) == (200, 1000)
    scores = cosines(x, texts).sort(dim=1, descending=True)
    hits = [found["image"].chances(row[:HEAD].tolist(), 1000) for row in scores.values]
    right = (scores.indices[:, :HEAD] // 5 == torch.arange(200)[:, None]).double().mean()
    assert torch.tensor(hits).mean() == pytest.approx(float(right), abs=0.06)


def test_words() -> None:
    calibration = Calibration(20.0, 0.1, 1.0, 200, 1000)
    scores = [0.5, 0.4, 0.1]
    assert [word for _, word in calibration.judged(scores, 3)] == ["strong", "fair", "weak"]
    assert calibration.fair(100) == 0.1
    # Items of which a query has five count as a fifth of them.
    assert Calibration(20.0, 0.1, 5.0, 200, 1000).fair(50_000) == calibration.fair(10_000)


def test_few_or_useless_pairs_give_none() -> None:
    assert Calibration.fit(*pairs(19, seed=4), diagonal(19)) is None
    everything = torch.ones(30, 1).nonzero().mT
    assert (
        Calibration.fit(torch.randn(30, 3), torch.randn(1, 3), (everything[0], everything[1]))
        is None
    )


def test_extreme_scores_give_chances() -> None:
    same = torch.ones(40, 3)
    collapsed = Calibration.fit(same, same, diagonal(40))
    perfect = Calibration.fit(torch.eye(40), torch.eye(40), diagonal(40))
    for found in (collapsed, perfect):
        assert found is not None
        chances = found.chances([1.0] + [0.0] * 12, 10**7)
        assert all(0 <= chance <= 1 and math.isfinite(chance) for chance in chances)
    assert perfect is not None
    assert perfect.judged([1.0] + [0.0] * 12, 1000)[0][1] == "strong"
    assert collapsed is not None
    assert collapsed.chances([1.0] * 10, 40)[0] == pytest.approx(1 / 40, rel=0.05)
