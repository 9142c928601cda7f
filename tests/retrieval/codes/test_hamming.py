from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ccal.codes import hamming_distances
from ccal.errors import InputError
from ccal.retrieval.codes import code_index
from ccal.retrieval.codes.code_index import Engine, HammingCodes


def drawn(rows: int, width: int, seed: int, few: bool = False) -> NDArray[np.uint8]:
    """Random codes; with `few`, of so few kinds that most distances tie."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 3 if few else 256, (rows, width), dtype=np.uint8)


def distance(a: NDArray[np.uint8], b: NDArray[np.uint8]) -> int:
    return sum((int(p) ^ int(q)).bit_count() for p, q in zip(a, b, strict=True))


def nearest_by_a_loop(
    queries: NDArray[np.uint8], candidates: NDArray[np.uint8], k: int
) -> tuple[list[list[int]], list[list[int]]]:
    ordered = [
        sorted((distance(query, candidate), row) for row, candidate in enumerate(candidates))[:k]
        for query in queries
    ]
    rows = [[row for _, row in found] for found in ordered]
    return rows, [[far for far, _ in found] for found in ordered]


@settings(deadline=None)
@given(st.integers(1, 40), st.sampled_from([1, 3, 8, 13, 40]), st.integers(0, 99))
def test_distances_are_those_of_a_loop(count: int, width: int, seed: int) -> None:
    queries, candidates = drawn(3, width, seed), drawn(count, width, seed + 100)
    expected = [[distance(q, c) for c in candidates] for q in queries]
    assert hamming_distances(queries, candidates).tolist() == expected


@settings(deadline=None)
@given(st.integers(1, 60), st.integers(1, 70), st.integers(0, 99), st.booleans())
def test_the_nearest_are_those_of_a_loop(count: int, k: int, seed: int, few: bool) -> None:
    queries, candidates = drawn(3, 5, seed, few), drawn(count, 5, seed + 100, few)
    rows, distances = HammingCodes(candidates).nearest(queries, k)
    assert (rows.tolist(), distances.tolist()) == nearest_by_a_loop(queries, candidates, k)


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    queries, candidates = drawn(4, 2, 0, few=True), drawn(500, 2, 1, few=True)
    whole = HammingCodes(candidates).nearest(queries, 20)
    monkeypatch.setattr(code_index, "_BLOCK", 7)
    for found, expected in zip(HammingCodes(candidates).nearest(queries, 20), whole, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_the_table_counts_as_numpy_does(monkeypatch: pytest.MonkeyPatch) -> None:
    queries, candidates = drawn(5, 11, 0), drawn(30, 11, 1)
    expected = hamming_distances(queries, candidates)
    monkeypatch.setattr(code_index, "_ones", code_index._table_ones)
    np.testing.assert_array_equal(hamming_distances(queries, candidates), expected)


@pytest.mark.parametrize("width", [1, 8, 13])
def test_faiss_finds_the_same(width: int) -> None:
    pytest.importorskip("faiss", reason="faiss is not installed")
    queries, candidates = drawn(6, width, 0), drawn(300, width, 1)
    ours = HammingCodes(candidates, "numpy").nearest(queries, 12)
    theirs = HammingCodes(candidates, "faiss").nearest(queries, 12)
    np.testing.assert_array_equal(ours[1], theirs[1])
    # All but those that tie at the last distance.
    for row in range(len(queries)):
        sure = ours[1][row] < ours[1][row, -1]
        np.testing.assert_array_equal(ours[0][row][sure], theirs[0][row][sure])


@pytest.mark.parametrize("engine", ["numpy", "faiss"])
def test_nothing_to_search_or_to_ask(engine: Engine) -> None:
    if engine == "faiss":
        pytest.importorskip("faiss", reason="faiss is not installed")
    some, none = drawn(4, 2, 0), drawn(0, 2, 0)
    codes, empty = HammingCodes(some, engine), HammingCodes(none, engine)
    assert [a.shape for a in empty.nearest(some, 3)] == [(4, 0)] * 2
    assert [a.shape for a in codes.nearest(none, 3)] == [(0, 3)] * 2
    assert len(empty) == 0
    with pytest.raises(InputError, match="k must be a whole number of at least 1"):
        codes.nearest(some, 0)
    with pytest.raises(InputError, match=r"\(n, 2\)"):
        codes.nearest(drawn(4, 3, 0), 1)
