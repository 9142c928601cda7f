from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ccal.errors import InputError
from ccal.evaluation.hubs import HubCorrection, csls_scores, inverted_softmax_scores


def draws(*sizes: int, seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(n, 5, generator=generator, dtype=torch.float64) for n in sizes]


def cosine(a: torch.Tensor, b: torch.Tensor) -> float:
    return float(torch.nn.functional.cosine_similarity(a, b, dim=0))


@settings(deadline=None)
@given(st.integers(0, 50), st.integers(1, 9))
def test_csls_is_that_of_a_loop(seed: int, neighbours: int) -> None:
    queries, candidates, bank = draws(4, 6, 7, seed=seed)

    def near(item: torch.Tensor, others: torch.Tensor) -> float:
        nearest = sorted((cosine(item, other) for other in others), reverse=True)[:neighbours]
        return sum(nearest) / len(nearest)

    found = csls_scores(queries, candidates, bank=bank, neighbours=neighbours)
    for i, query in enumerate(queries):
        for j, candidate in enumerate(candidates):
            expected = 2 * cosine(query, candidate) - near(query, candidates)
            assert math.isclose(found[i, j].item(), expected - near(candidate, bank), abs_tol=1e-12)


@settings(deadline=None)
@given(st.integers(0, 50), st.floats(0.01, 2))
def test_inverted_softmax_is_that_of_a_loop(seed: int, temperature: float) -> None:
    queries, candidates = draws(4, 6, seed=seed)
    found = inverted_softmax_scores(queries, candidates, temperature=temperature).exp()
    for j, candidate in enumerate(candidates):
        shares = [math.exp(cosine(query, candidate) / temperature) for query in queries]
        expected = torch.tensor([s / sum(shares) for s in shares], dtype=torch.float64)
        torch.testing.assert_close(found[:, j], expected)


def test_csls_of_a_bank_ranks_as_the_hub_correction_of_half_weight() -> None:
    queries, candidates, bank = draws(20, 30, 25)
    hubs = HubCorrection(5, bank=25, neighbours=10, weight=0.5).double()
    hubs.fit(bank, bank)
    corrected = hubs.correct_x(queries) @ hubs.correct_y(candidates).mT
    # The bank of the correction is kept in float32.
    found = csls_scores(queries, candidates, bank=bank)
    differences = (found - found[:, :1]) / 2 - 3 * (corrected - corrected[:, :1])
    assert differences.abs().max() < 1e-6


@pytest.mark.parametrize("scores", [csls_scores, inverted_softmax_scores])
def test_a_hub_is_found_less_often(scores: Callable[..., torch.Tensor]) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, 16, generator=generator) + 0.3
    y = x + torch.randn(300, 16, generator=generator)
    y[0] = x.mean(0)

    def times(found: torch.Tensor) -> int:
        return int((found.topk(10).indices == 0).sum())

    unit = torch.nn.functional.normalize
    assert times(scores(x, y)) < times(unit(x) @ unit(y).mT) - 10


@pytest.mark.parametrize("scores", [csls_scores, inverted_softmax_scores])
def test_awkward_input(scores: Callable[..., torch.Tensor]) -> None:
    queries, candidates = draws(3, 4)

    assert scores(queries[:0], candidates, bank=queries).shape == (0, 4)
    assert scores(0 * queries, candidates).isfinite().all()
    with pytest.raises(InputError, match="one space"):
        scores(queries, candidates[:, :2])
    with pytest.raises(InputError, match="at least one query"):
        scores(queries[:0], candidates)
    with pytest.raises(InputError, match="candidates has NaN"):
        scores(queries, candidates * math.nan)


def test_options_are_checked() -> None:
    with pytest.raises(InputError, match="neighbours"):
        csls_scores(torch.eye(2), torch.eye(2), neighbours=0)
    with pytest.raises(InputError, match="temperature"):
        inverted_softmax_scores(torch.eye(2), torch.eye(2), temperature=0)
