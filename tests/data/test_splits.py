from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccal.data import Pairs, Split, column_split, disjoint_split, random_split, split_pairs
from ccal.errors import InputError


def check_partition(split: Split, n: int) -> None:
    parts = [split.train, split.valid, split.test]
    for part in parts:
        assert part.dtype == np.int64
        assert bool((np.diff(part) > 0).all())
    assert sorted(np.concatenate(parts).tolist()) == list(range(n))


@settings(deadline=None)
@given(data=st.data(), n=st.integers(1, 500), seed=st.integers(0, 2**40))
def test_counts_are_exact_and_parts_disjoint(data: st.DataObject, n: int, seed: int) -> None:
    valid = data.draw(st.integers(0, n - 1))
    test = data.draw(st.integers(0, n - 1 - valid))
    split = random_split(n, valid=valid, test=test, seed=seed)
    check_partition(split, n)
    assert (len(split.valid), len(split.test)) == (valid, test)
    again = random_split(n, valid=valid, test=test, seed=seed)
    assert np.array_equal(split.valid, again.valid)
    assert np.array_equal(split.test, random_split(n, valid=0, test=test, seed=seed).test)


@settings(deadline=None)
@given(
    n=st.integers(10, 1000),
    valid=st.floats(0, 0.4),
    test=st.floats(0, 0.4),
    seed=st.integers(0, 99),
)
def test_fractions_are_rounded_but_never_to_nothing(
    n: int, valid: float, test: float, seed: int
) -> None:
    split = random_split(n, valid=valid, test=test, seed=seed)
    check_partition(split, n)
    for part, fraction in ((split.valid, valid), (split.test, test)):
        assert abs(len(part) - fraction * n) <= 0.5 or len(part) == 1
        assert (len(part) > 0) == (fraction > 0)


@settings(deadline=None)
@given(
    keys=st.lists(st.integers(-5, 30), min_size=3, max_size=300).filter(lambda k: len(set(k)) > 2),
    seed=st.integers(0, 99),
    texts=st.booleans(),
)
def test_a_key_is_in_one_part_only(keys: list[int], seed: int, texts: bool) -> None:
    array = np.array([str(key) for key in keys] if texts else keys)
    split = disjoint_split(array, valid=1, test=1, seed=seed)
    check_partition(split, len(keys))
    sets = [set(array[part].tolist()) for part in (split.train, split.valid, split.test)]
    assert [len(s) for s in sets] == [len(set(keys)) - 2, 1, 1]
    assert len(set.union(*sets)) == len(set(keys))


def test_the_order_of_rows_does_not_move_a_key() -> None:
    keys = np.repeat(np.arange(40), 5)
    shuffled = np.random.default_rng(0).permutation(keys)
    one, two = (disjoint_split(k, valid=0.2, test=0.2, seed=3) for k in (keys, shuffled))
    assert set(keys[one.test].tolist()) == set(shuffled[two.test].tolist())


def test_a_split_is_the_same_for_ever() -> None:
    split = random_split(12, valid=2, test=3, seed=1)
    assert (split.valid.tolist(), split.test.tolist()) == ([5, 7], [2, 4, 9])


def test_seeds_differ() -> None:
    tests = {tuple(random_split(100, test=20, seed=seed).test.tolist()) for seed in range(20)}
    assert len(tests) == 20


def test_every_row_is_equally_likely_to_be_tested() -> None:
    counts = np.zeros(20)
    for seed in range(2000):
        counts[random_split(20, valid=0, test=5, seed=seed).test] += 1
    # Binomial(2000, 1/4): standard deviation 19.4.
    assert abs(counts - 500).max() < 4 * 19.4


def test_a_column_decides() -> None:
    split = column_split(["train", "VAL", "test", "dev", "validation", " Training "])
    assert split.train.tolist() == [0, 5]
    assert split.valid.tolist() == [1, 3, 4]
    assert split.test.tolist() == [2]
    with pytest.raises(InputError, match=r"row 1 \(from 0\) has the split 'restval'"):
        column_split(["train", "restval"])
    with pytest.raises(InputError, match="no row for train"):
        column_split(["test", "valid"])


def test_pairs_are_split_by_group_if_they_have_one() -> None:
    x = np.arange(20.0)[:, None]
    label, group = np.arange(20) // 10, np.arange(20) // 2
    pairs = Pairs({"x": x, "y": x}, label=label, group=group)
    for part in split_pairs(pairs, valid=2, test=3).of(pairs):
        assert part.group is not None
        counts = np.unique(part.group, return_counts=True)[1]
        assert bool((counts == 2).all())
    by_label = split_pairs(pairs, by="label", valid=1, test=0).of(pairs)
    assert [len(part) for part in by_label] == [10, 10, 0]
    assert len(split_pairs(pairs, by="random", valid=1, test=1).train) == 18
    plain = Pairs({"x": x, "y": x})
    assert len(split_pairs(plain, valid=1, test=1).train) == 18
    with pytest.raises(InputError, match="cannot split by label: the pairs have no label column"):
        split_pairs(plain, by="label")
    with pytest.raises(InputError, match="by must be"):
        split_pairs(plain, by="rows")  # type: ignore[arg-type]


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(InputError, match=r"valid \(5\) and test \(5\) leave nothing of 10"):
        random_split(10, valid=0.5, test=5)
    with pytest.raises(InputError, match=r"valid must be a fraction in \[0, 1\)"):
        random_split(10, valid=1.0)
    with pytest.raises(InputError, match="test must be a whole number of at least 0"):
        random_split(10, test=-1)
    with pytest.raises(InputError, match="seed must be a whole number of at least 0"):
        random_split(10, seed=-1)
    with pytest.raises(InputError, match="leave nothing of 0"):
        random_split(0)
