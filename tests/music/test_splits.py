from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from ccal.errors import InputError
from ccal.music import melody_groups, split_tunes_by_melody

Melody = tuple[NDArray[np.int64], NDArray[np.int64]]


def melody(seed: int, n: int = 60) -> Melody:
    rng = np.random.default_rng(seed)
    pitches = 60 + rng.integers(0, 20, n)
    return pitches, np.cumsum(rng.choice([240, 480, 960], n))


def test_same_melodies_are_found_in_other_keys_and_units() -> None:
    one, other = melody(0), melody(1)
    transposed, doubled = (one[0] + 7, one[1]), (one[0] - 3, one[1] * 2)
    assert melody_groups([one, other, transposed, melody(2), doubled]) == [0, 1, 0, 2, 0]


def test_nearly_the_same_melodies_are_found() -> None:
    pitches, starts = melody(0)
    changed = pitches.copy()
    changed[[20, 45]] += 1
    longer = (np.append(pitches, pitches[:20] + 1), np.append(starts, starts[:20] + starts[-1]))
    assert melody_groups([(pitches, starts), (changed, starts), longer]) == [0, 0, 0]


def test_different_melodies_are_not_the_same() -> None:
    assert melody_groups([melody(seed) for seed in range(30)]) == list(range(30))
    one = melody(0)
    assert melody_groups([one, (one[0], np.arange(60))]) == [0, 1], "another rhythm"
    assert melody_groups([]) == []
    single = (np.array([60]), np.array([0]))
    assert melody_groups([single, melody(0)]) == [0, 1]


def test_groups_stay_together_in_a_split() -> None:
    groups = np.random.default_rng(0).integers(0, 150, 300)
    split = split_tunes_by_melody(groups.tolist(), valid=30, test=0.1, seed=3)
    assert (len(split.valid), len(split.test), len(split.train)) == (30, 30, 240)
    sides = [set(groups[part]) for part in (split.train, split.valid, split.test)]
    for first, second in combinations(sides, 2):
        assert not first & second
    assert sorted(np.concatenate((split.train, split.valid, split.test))) == list(range(300))
    same = split_tunes_by_melody(groups.tolist(), valid=50, test=0.1, seed=3)
    assert np.array_equal(same.test, split.test)
    other = split_tunes_by_melody(groups.tolist(), valid=30, test=0.1, seed=4)
    assert not np.array_equal(other.test, split.test)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"valid": 2, "test": 2}, "leave nothing of 4 tunes"),
        ({"valid": -1}, "valid must be 0 or more"),
        ({"test": 1.5}, "test must be a fraction"),
        ({"seed": -1}, "seed must be a whole number of at least 0"),
    ],
)
def test_splits_that_cannot_be(sizes: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        split_tunes_by_melody([0, 1, 2, 3], **sizes)
