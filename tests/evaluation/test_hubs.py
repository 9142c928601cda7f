"""Hub correction, scores against hubs, and means of neighbours."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ccal.errors import InputError
from ccal.evaluation.hubs import (
    HubCorrection,
    csls_scores,
    inverted_softmax_scores,
    mean_of_neighbours,
)


def views(n: int, dim: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(n, dim, generator=generator, dtype=torch.float64),
        torch.randn(n, dim, generator=generator, dtype=torch.float64),
    )


@settings(max_examples=25)
@given(st.integers(0, 50), st.floats(0, 1), st.integers(1, 7))
def test_cosines_of_corrected_embeddings_are_the_scores(
    seed: int, weight: float, neighbours: int
) -> None:
    bank_x, bank_y = views(7, 5, seed)
    x, y = views(9, 5, seed + 1000)
    hubs = HubCorrection(5, bank=7, neighbours=neighbours, weight=weight).double()
    hubs.fit(bank_x, bank_y)
    cosine = torch.nn.functional.cosine_similarity

    def hubness(item: torch.Tensor, bank: torch.Tensor) -> float:
        nearest = sorted((float(cosine(item, other, dim=0)) for other in bank), reverse=True)
        return sum(nearest[:neighbours]) / neighbours

    found = cosine(hubs.correct_x(x)[:, None], hubs.correct_y(y)[None], dim=2)
    for i in range(9):
        for j in range(9):
            expected = float(cosine(x[i], y[j], dim=0))
            expected -= weight * (hubness(x[i], bank_y) + hubness(y[j], bank_x))
            assert abs(float(found[i, j]) - expected / 3) < 1e-6


def test_a_hub_is_set_back() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(400, 16, generator=generator) + 0.3
    y = x + torch.randn(400, 16, generator=generator)
    hubs = HubCorrection(16, bank=200)
    hubs.fit(x[:200], y[:200])
    queries, candidates = x[200:], torch.cat((y[200:], x.mean(0, keepdim=True)))

    def times_among_the_nearest(queries: torch.Tensor, candidates: torch.Tensor) -> int:
        unit = torch.nn.functional.normalize
        nearest = (unit(queries) @ unit(candidates).mT).topk(10, dim=1).indices
        return int((nearest == len(candidates) - 1).sum())

    before = times_among_the_nearest(queries, candidates)
    after = times_among_the_nearest(hubs.correct_x(queries), hubs.correct_y(candidates))
    assert before > 30  # where 10 would be its share
    assert after < before - 10


def test_no_weight_changes_no_rank() -> None:
    x, y = views(30, 4)
    hubs = HubCorrection(4, bank=30, weight=0.0).double()
    hubs.fit(x, y)
    corrected = hubs.correct_x(x) @ hubs.correct_y(y).mT
    unit = torch.nn.functional.normalize
    torch.testing.assert_close(corrected, unit(x) @ unit(y).mT / 3)


def test_empty_and_zero_rows() -> None:
    x, y = views(12, 4)
    hubs = HubCorrection(4, bank=12).double()
    hubs.fit(x, y)
    assert hubs.correct_x(x[:0]).shape == (0, 8)
    assert hubs.correct_y(torch.zeros(2, 4, dtype=torch.float64)).isfinite().all()


@pytest.mark.parametrize("options", [{"weight": 2.0}, {"neighbours": 9}, {"neighbours": 0}])
def test_options_are_checked(options: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        HubCorrection(4, bank=8, **options)  # type: ignore[arg-type]


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


def test_scores_check_their_options() -> None:
    with pytest.raises(InputError, match="neighbours"):
        csls_scores(torch.eye(2), torch.eye(2), neighbours=0)
    with pytest.raises(InputError, match="temperature"):
        inverted_softmax_scores(torch.eye(2), torch.eye(2), temperature=0)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_means_are_those_of_a_loop() -> None:
    rng = generator(0)
    embeddings = torch.randn(40, 5, generator=rng, dtype=torch.float64)
    features = torch.randn(40, 7, generator=rng, dtype=torch.float64)
    found = mean_of_neighbours(embeddings, features, neighbours=6)
    for i in range(40):
        cosines = torch.cosine_similarity(features[i][None], features)
        total = sum(
            cosines[j].clamp_min(0) * embeddings[j] / embeddings[j].norm()
            for j in cosines.argsort(descending=True)[:6].tolist()
        )
        assert isinstance(total, torch.Tensor)
        torch.testing.assert_close(found[i], total / total.norm())


def test_alone_an_embedding_stays_as_it_is() -> None:
    embeddings = torch.randn(30, 4, generator=generator(1))
    found = mean_of_neighbours(embeddings, torch.randn(30, 3), neighbours=1)
    torch.testing.assert_close(found, torch.nn.functional.normalize(embeddings))


def test_more_neighbours_than_candidates_are_all_of_them() -> None:
    embeddings, features = torch.randn(5, 4), torch.rand(5, 3) + 1
    all_of_them = mean_of_neighbours(embeddings, features, neighbours=5)
    assert torch.equal(mean_of_neighbours(embeddings, features, neighbours=50), all_of_them)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="3 and 2 rows"):
        mean_of_neighbours(torch.eye(3), torch.eye(2), neighbours=1)
    with pytest.raises(InputError, match="neighbours"):
        mean_of_neighbours(torch.eye(3), torch.eye(3), neighbours=0)
