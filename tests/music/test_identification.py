from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccal.music.identification import best_lines, follow, votes


def slow_lines(
    similarity: np.ndarray, bounds: np.ndarray, steps: np.ndarray, paces: tuple[float, ...]
) -> list[float]:
    """The best mean along any line, tried one after the other."""
    found = []
    for begin, end in pairwise(bounds):
        own, best = similarity[:, begin:end], -np.inf
        for pace in paces:
            shift = np.rint(steps * pace).astype(int)
            for first in range(-int(np.rint(steps[-1] * max(paces))), end - begin):
                at = first + shift
                inside = (at >= 0) & (at < end - begin)
                best = max(best, own[np.flatnonzero(inside), at[inside]].sum() / len(steps))
        found.append(best)
    return found


@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 4))
def test_lines_are_the_best_of_all(seed: int, queries: int, tunes: int) -> None:
    rng = np.random.default_rng(seed)
    bounds = np.concatenate([[0], np.cumsum(rng.integers(1, 9, size=tunes))])
    similarity = rng.normal(size=(queries, bounds[-1])).astype(np.float32)
    steps = np.cumsum(rng.uniform(0.4, 2, size=queries))
    steps -= steps[0]
    paces = (0.8, 1.0, 1.25)
    lines = best_lines(similarity, bounds, steps, paces)
    np.testing.assert_allclose(
        lines.score, slow_lines(similarity, bounds, steps, paces), rtol=1e-5, atol=1e-6
    )
    for tune in range(tunes):
        own = similarity[:, bounds[tune] : bounds[tune + 1]]
        at = lines.first[tune] + np.rint(steps * lines.pace[tune]).astype(int)
        inside = (at >= 0) & (at < own.shape[1])
        along = own[np.flatnonzero(inside), at[inside]].sum() / queries
        assert along == pytest.approx(lines.score[tune], abs=1e-5)


@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 20))
def test_paths_never_turn_back_and_are_no_worse_than_the_line(
    seed: int, queries: int, positions: int
) -> None:
    rng = np.random.default_rng(seed)
    similarity = rng.normal(size=(queries, positions)).astype(np.float32)
    steps, pace = np.arange(queries, dtype=float), rng.uniform(0.8, 1.25)
    first = int(rng.integers(-2, positions))
    path = follow(similarity, steps, first, pace)
    assert len(path) == queries
    assert (np.diff(path) >= 0).all()
    assert 0 <= path.min() <= path.max() < positions
    at = np.rint(first + steps * pace).astype(int)
    if at[-1] < positions and first >= 0:
        along, line = (similarity[np.arange(queries), way].sum() for way in (path, at))
        assert along >= line - 1e-5


def test_a_path_bends_where_the_music_does() -> None:
    wanted = np.array([0, 1, 2, 3, 5, 6, 7, 9])
    similarity = np.zeros((8, 12), dtype=np.float32)
    similarity[np.arange(8), wanted] = 1
    path = follow(similarity, np.arange(8.0), first=0, pace=1.2)
    assert path.tolist() == wanted.tolist()


def test_a_tune_is_found_at_another_pace() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(300, 16))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    # Every fifth place is passed over: the query is played faster.
    rows = 120 + np.rint(np.arange(20) * 1.2).astype(int)
    similarity = np.asarray(vectors[rows] @ vectors.T, dtype=np.float32)
    bounds = np.array([0, 100, 200, 300])
    lines = best_lines(similarity, bounds, np.arange(20.0))
    assert lines.score.argmax() == 1
    assert lines.first[1] == 20
    assert lines.pace[1] == pytest.approx(1.2, abs=0.03)
    assert votes(similarity, bounds).argmax() == 1
