"""Exact search against sorting everything."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ccal.retrieval import exact
from ccal.retrieval.embedding import unit_vectors
from tests.retrieval.conftest import rows


def each(found: exact.Candidates) -> list[tuple[list[float], list[int]]]:
    """Cosines and positions of each query."""
    rows = []
    for query in range(len(found.cosines)):
        cosines, at = found.more.get(query, (found.cosines[query], found.positions[query]))
        rows.append((cosines[cosines > -np.inf].tolist(), at[cosines > -np.inf].tolist()))
    return rows


def expected(queries: torch.Tensor, vectors: torch.Tensor, k: int) -> list[list[float]]:
    cosines = queries.double() @ vectors.double().T
    return [sorted(row.tolist(), reverse=True)[:k] for row in cosines]


@pytest.mark.parametrize("count", [1, 5, 63, 64, 3000, 7001])
@pytest.mark.parametrize("k", [1, 10, 100])
def test_the_best_are_among_the_candidates(count: int, k: int) -> None:
    queries = torch.nn.functional.normalize(torch.randn(9, 12))
    vectors = torch.nn.functional.normalize(torch.randn(count, 12))
    found = each(exact.nearest(queries.numpy(), vectors.numpy(), k))
    for (cosines, positions), best in zip(found, expected(queries, vectors, k), strict=True):
        assert len(set(positions)) == len(positions)
        np.testing.assert_allclose(sorted(cosines, reverse=True)[:k], best, atol=1e-12)


@settings(deadline=None)
@given(
    st.integers(1, 400), st.integers(1, 30), st.integers(1, 3), st.randoms(use_true_random=False)
)
def test_everything_that_ties_is_found(count: int, k: int, kinds: int, rng: object) -> None:
    kind = torch.tensor([rng.randrange(kinds) for _ in range(count)])  # type: ignore[attr-defined]
    vectors = torch.eye(3)[kind]
    query = torch.nn.functional.normalize(torch.tensor([[3.0, 2.0, 1.0]]))
    ((cosines, positions),) = each(exact.nearest(query.numpy(), vectors.numpy(), k))
    kth = (vectors @ query[0]).topk(min(k, count)).values[-1]
    wanted = (vectors @ query[0] >= kth - 1e-9).nonzero().flatten().tolist()
    assert set(wanted) <= set(positions)
    assert len(cosines) == len(positions)


def test_what_is_not_allowed_is_not_found() -> None:
    vectors = torch.nn.functional.normalize(torch.randn(5000, 6))
    allowed = np.zeros(5000, np.bool_)
    allowed[[3, 4000, 4999]] = True
    for _, positions in each(exact.nearest(vectors[:20].numpy(), vectors.numpy(), 10, allowed)):
        assert sorted(positions) == [3, 4000, 4999]


@pytest.mark.parametrize("count", [100, 6400, 10_007])
def test_largest(count: int) -> None:
    scores = torch.randn(5, count).round(decimals=2)
    values, positions = exact.largest(scores, 20)
    torch.testing.assert_close(values.sort(descending=True).values, scores.topk(20).values)
    assert (scores.gather(1, positions) == values).all()
    assert all(len(set(row.tolist())) == 20 for row in positions)


def test_blocks_and_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    queries = torch.nn.functional.normalize(torch.randn(30, 8))
    vectors = torch.nn.functional.normalize(torch.randn(500, 8)).half()
    whole = each(exact.nearest(queries.numpy(), vectors.numpy(), 5))
    monkeypatch.setattr(exact, "_BLOCK", 1000)
    monkeypatch.setattr(exact, "_CHUNK", 70)
    for (a, _), (b, _) in zip(
        whole, each(exact.nearest(queries.numpy(), vectors.numpy(), 5)), strict=True
    ):
        assert sorted(a)[-5:] == sorted(b)[-5:]


@pytest.mark.parametrize("dim", [1, 7, 128, 200])
@pytest.mark.parametrize("held", [1 << 12, 1 << 19])
def test_scores_depend_on_query_and_vector_only(
    dim: int, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exact, "_BYTES", held)
    vectors = unit_vectors(rows(500, width=dim), dim, "vectors")
    vectors[1::2] = vectors[::2]
    queries = unit_vectors(rows(90, seed=1, width=dim), dim, "vectors")
    everywhere = np.tile(np.arange(500), (90, 1))
    together = exact.score(queries, vectors, everywhere)
    assert (together[:, 1::2] == together[:, ::2]).all()
    for query in range(0, 90, 17):
        alone = exact.score(queries[query : query + 1], vectors, np.array([[7]]))
        assert alone[0, 0] == together[query, 7]
    wanted = queries.astype(np.float64) @ vectors.astype(np.float64).T
    np.testing.assert_allclose(together, wanted, atol=2e-12)
