from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccal.data import Pairs, Split, column_split, disjoint_split, random_split, split_pairs
from ccal.data.splits import connected_rows
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


def check_parts_share(pairs: Pairs, split: Split, name: str, *, leaks: bool) -> None:
    """Whether any item of a modality is in two parts."""
    parts = [set(part.items(name).tolist()) for part in split.of(pairs)]
    assert (sum(map(len, parts)) > len(set.union(*parts))) == leaks


def slow_components(*keys: list[int]) -> list[int]:
    """The first row of each row's component, one row at a time."""
    found = list(range(len(keys[0])))
    for _ in found:
        for row, other in np.ndindex(len(found), len(found)):
            if any(key[row] == key[other] for key in keys):
                found[row] = found[other] = min(found[row], found[other])
    return found


@settings(deadline=None, max_examples=50)
@given(
    rows=st.lists(st.tuples(*[st.integers(0, 8)] * 3), min_size=1, max_size=10),
    grouped=st.booleans(),
)
def test_connected_rows_by_a_slow_search(rows: list[tuple[int, ...]], grouped: bool) -> None:
    x, y, group = (list(column) for column in zip(*rows, strict=True))
    pairs = Pairs({"x": np.array(x)[:, None], "y": [f"text {key}" for key in y]})
    found = connected_rows(pairs, group if grouped else None)
    expected = slow_components(x, y, group) if grouped else slow_components(x, y)
    same = np.equal.outer(np.array(expected), np.array(expected))
    assert np.array_equal(np.equal.outer(found, found), same)


@settings(deadline=None)
@given(n=st.integers(3, 80), seed=st.integers(0, 99), data=st.data())
def test_pairs_without_repeated_content_are_split_as_rows_or_groups_are(
    n: int, seed: int, data: st.DataObject
) -> None:
    x, y = np.arange(n)[:, None], [f"text {row}" for row in range(n)]
    sizes = {"valid": 1, "test": 0.1, "seed": seed}
    plain = Pairs({"x": x, "y": y})
    for by in (None, "random"):
        split = split_pairs(plain, by=by, **sizes)  # type: ignore[arg-type]
        assert np.array_equal(split.test, random_split(n, **sizes).test)  # type: ignore[arg-type]
        assert np.array_equal(split.valid, random_split(n, **sizes).valid)  # type: ignore[arg-type]
    group = data.draw(st.lists(st.integers(-9, 9), min_size=n, max_size=n))
    if len(set(group)) > 3:
        split = split_pairs(Pairs({"x": x, "y": y}, group=group), **sizes)  # type: ignore[arg-type]
        former = disjoint_split(group, **sizes)  # type: ignore[arg-type]
        assert np.array_equal(split.test, former.test)
        assert np.array_equal(split.valid, former.valid)


def captions(photos: int, each: int, texts: list[str]) -> Pairs:
    """A row a caption: each photo has the next `each` texts."""
    x = np.repeat(np.arange(photos), each)[:, None].astype(np.float32)
    return Pairs({"photo": x, "text": [texts[row % len(texts)] for row in range(len(x))]})


def test_rows_of_one_photo_stay_together_unless_leaks_are_allowed() -> None:
    pairs = captions(50, 4, [f"text {row}" for row in range(200)])
    for by in (None, "random"):
        split = split_pairs(pairs, by=by)
        check_parts_share(pairs, split, "photo", leaks=False)
        assert (len(split.train), len(split.test)) == (160, 20)
    former = split_pairs(pairs, allow_leaks=True)
    check_parts_share(pairs, former, "photo", leaks=True)
    assert np.array_equal(former.test, random_split(200).test)
    # As a list of captions would be split.
    grouped = Pairs(
        {name: pairs.column(name) for name in pairs.names}, group=np.repeat(np.arange(50), 4)
    )
    assert np.array_equal(split_pairs(grouped).test, split_pairs(pairs).test)
    # Texts that two photos share join their rows.
    joined = captions(50, 4, [f"text {row % 190}" for row in range(200)])
    for name in joined.names:
        check_parts_share(joined, split_pairs(joined), name, leaks=False)


@pytest.mark.parametrize("count", [2, 10, 150], ids=["classes", "more classes", "short texts"])
def test_texts_that_connect_too_much_connect_nothing(count: int) -> None:
    drawn = np.random.default_rng(0).integers(0, count, 1000)
    pairs = captions(200, 5, [f"text {number}" for number in drawn])
    split = split_pairs(pairs)
    check_parts_share(pairs, split, "photo", leaks=False)
    check_parts_share(pairs, split, "text", leaks=True)
    assert len(split.test) == 100


def test_of_two_kinds_of_texts_those_stay_together_that_leave_fewer_apart() -> None:
    # Each question has 5 answers, most of which are its own; some others connect all questions.
    questions = [f"question {row // 5}" for row in range(1000)]
    answers = [f"answer {row}" if row % 5 else f"answer {row // 15}" for row in range(1000)]
    answers[1::5] = [f"other {(row // 5 + 1) // 2}" for row in range(1, 1000, 5)]
    for names in (("question", "answer"), ("answer", "question")):
        columns = {"question": questions, "answer": answers}
        pairs = Pairs({name: columns[name] for name in names})
        split = split_pairs(pairs)
        check_parts_share(pairs, split, "question", leaks=False)
        check_parts_share(pairs, split, "answer", leaks=True)


def test_labels_are_split_whatever_rows_share() -> None:
    pairs = captions(50, 4, [f"text {row}" for row in range(200)])
    label = np.arange(200) % 10
    labelled = Pairs({name: pairs.column(name) for name in pairs.names}, label=label)
    split = split_pairs(labelled, by="label")
    assert np.array_equal(split.test, disjoint_split(label).test)
    check_parts_share(labelled, split, "photo", leaks=True)


def test_too_few_sets_of_rows_are_refused() -> None:
    x = np.arange(30.0)[:, None]
    with pytest.raises(InputError, match="All 30 rows have the same text, so there is nothing to"):
        split_pairs(Pairs({"x": x, "text": ["a dog"] * 30}))
    with pytest.raises(InputError, match="All 30 rows have the same x"):
        split_pairs(Pairs({"x": x * 0, "y": x}))
    with pytest.raises(InputError, match=r"only 2 sets of rows that share .*\(--allow-leaks\)"):
        split_pairs(Pairs({"x": x % 2, "y": x}))
    assert len(split_pairs(Pairs({"x": x % 2, "y": x}), allow_leaks=True).test) == 3
    # Nothing is split off, so nothing can leak.
    assert len(split_pairs(Pairs({"x": x * 0, "y": x}), valid=0, test=0).train) == 30


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
