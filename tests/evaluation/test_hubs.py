from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ccal.errors import InputError
from ccal.evaluation.hubs import HubCorrection


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
