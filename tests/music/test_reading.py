from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccal.music.reading import follow_steps, lay_along, runs


def worth(head: int, note: int) -> float:
    return {0: 1.0, 1: -0.2}.get(abs(head - note), -0.6)


def slow_worth(heads: list[int], tune: list[int]) -> float:
    """The best path through a tune, cell by cell."""
    total = np.zeros((len(heads) + 1, len(tune) + 1))
    for i, head in enumerate(heads, start=1):
        for j in range(len(tune) + 1):
            ways = [total[i - 1, j] - 0.5]
            if j:
                ways += [total[i - 1, j - 1] + worth(head, tune[j - 1]), total[i, j - 1] - 0.5]
            total[i, j] = max(ways)
    return float(total[-1].max())


STEPS = st.lists(st.integers(-9, 10), min_size=1, max_size=9)


@given(STEPS, st.lists(STEPS, min_size=1, max_size=4))
def test_the_best_path_through_each_tune(heads: list[int], tunes: list[list[int]]) -> None:
    found = lay_along(np.array(heads), [np.array(tune) for tune in tunes])
    wanted = [slow_worth(heads, tune) / len(heads) for tune in tunes]
    np.testing.assert_allclose(found, wanted, atol=1e-6)


@given(STEPS, STEPS)
def test_followed_paths_have_that_worth(heads: list[int], tune: list[int]) -> None:
    found = follow_steps(np.array(heads), np.array(tune))
    on = np.flatnonzero(found >= 0)
    notes = found[on]
    assert (np.diff(notes) > 0).all()
    passed = int((np.diff(notes) - 1).sum())
    value = sum(worth(heads[i], tune[j]) for i, j in zip(on, notes, strict=True))
    value -= 0.5 * (len(heads) - len(on) + passed)
    assert value == pytest.approx(slow_worth(heads, tune), abs=1e-6)


def test_one_line_that_fits_badly_does_not_part_a_tune() -> None:
    fits = np.array([[0.9, 0.3], [0.4, 0.6], [0.9, 0.3]])
    assert runs(fits) == [[0, 1, 2]]
    assert runs(fits[:1]) == [[0]]
