"""Train, validation and test rows: at random, disjoint in a key, or as a column says.

Rows of one photo, of one text or of one group stay together, so that nothing is tested which
training has seen: `connected_rows` finds what must not be split apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccal.bounds import Options, Whole, check
from ccal.data.pairs import Pairs, Rows
from ccal.errors import InputError
from ccal.numbering import components

_NAMES = {"train": "train", "training": "train", "test": "test"}
_NAMES |= dict.fromkeys(("valid", "val", "validation", "dev"), "valid")


@dataclass(frozen=True)
class Split:
    """Row numbers (int64, ascending) of each part; no row is in two of them."""

    train: NDArray[np.int64]
    valid: NDArray[np.int64]
    test: NDArray[np.int64]

    def of(self, pairs: Pairs) -> tuple[Pairs, Pairs, Pairs]:
        """The training, validation and test pairs, as subsets that copy nothing."""
        return pairs[self.train], pairs[self.valid], pairs[self.test]


def random_split(
    n: int, *, valid: float | int = 0.1, test: float | int = 0.1, seed: int = 0
) -> Split:
    """Split `n` rows at random; `valid` and `test` are fractions (float) or counts (int).

    A fraction above 0 gives at least one row. The same seed gives the same split on every machine,
    and the test rows do not depend on `valid`.

    >>> split = random_split(10, valid=2, test=0.3)
    >>> len(split.train), len(split.valid), len(split.test)
    (5, 2, 3)
    """
    n_valid, n_test = _part_sizes(n, valid, test)
    parts = np.split(_random_order(n, seed), [n_test, n_test + n_valid])
    return Split(train=np.sort(parts[2]), valid=np.sort(parts[1]), test=np.sort(parts[0]))


def disjoint_split(
    keys: ArrayLike, *, valid: float | int = 0.1, test: float | int = 0.1, seed: int = 0
) -> Split:
    """Split rows so that those of one key (n,), a group or a label, stay together.

    `valid` and `test` are fractions (float) or counts (int) of the distinct keys, not of rows.

    >>> split = disjoint_split(["a", "b", "a", "c", "c", "b"], valid=1, test=1)
    >>> len(split.train), len(split.valid), len(split.test)
    (2, 2, 2)
    """
    distinct, codes = np.unique(np.asarray(keys), return_inverse=True)
    split = random_split(len(distinct), valid=valid, test=test, seed=seed)
    part = np.zeros(len(distinct), dtype=np.int8)
    part[split.valid], part[split.test] = 1, 2
    train, valid_rows, test_rows = (np.flatnonzero(part[codes] == p) for p in range(3))
    return Split(train, valid_rows, test_rows)


def column_split(values: Sequence[str] | NDArray[Any]) -> Split:
    """Split rows by a column (n,) of train / valid (val, validation, dev) / test, in any case.

    >>> column_split(["train", "Dev", "test", "train"]).train
    array([0, 3])
    """
    names = [split_name(str(value)) for value in values]
    if None in names:
        row = names.index(None)
        raise InputError(
            f"row {row} (from 0) has the split {str(values[row])!r}; expected train, valid or test."
        )
    array = np.array(names)
    train, valid, test = (np.flatnonzero(array == name) for name in ("train", "valid", "test"))
    if len(train) == 0:
        raise InputError("the split column has no row for train.")
    return Split(train, valid, test)


def split_pairs(
    pairs: Pairs,
    *,
    by: Literal["random", "group", "label"] | None = None,
    valid: float | int = 0.1,
    test: float | int = 0.1,
    seed: int = 0,
    allow_leaks: bool = False,
) -> Split:
    """Split pairs by groups if there are any, or by labels, or at random ("random").

    Rows with the same item of a modality stay together as those of one group do, except in a split
    by labels or with `allow_leaks`: see `connected_rows`. `valid` and `test` count (or are
    fractions of) rows, groups or labels; a part has fewer if sets of rows do not fit into it.

    >>> pairs = Pairs({"x": np.eye(4)[[0, 0, 1, 1]], "y": np.eye(4)})
    >>> split = split_pairs(pairs, valid=1, test=0)
    >>> len(split.train), len(split.valid)
    (2, 2)
    """
    check("by", by, Options("random", "group", "label", None))
    if by is None:
        by = "random" if pairs.group is None else "group"
    keys = {"random": None, "group": pairs.group, "label": pairs.label}[by]
    if keys is None and by != "random":
        raise InputError(f"cannot split by {by}: the pairs have no {by} column.")
    if by != "label" and not allow_leaks and (valid or test):
        return _connected_split(pairs, keys, valid, test, seed)
    if keys is None:
        return random_split(len(pairs), valid=valid, test=test, seed=seed)
    return disjoint_split(keys, valid=valid, test=test, seed=seed)


def connected_rows(pairs: Pairs, group: ArrayLike | None = None) -> NDArray[np.int64]:
    """The set (n,) that each row belongs to: rows connected by equal items or an equal group.

    Common texts, those in more than 10 rows and in more than 2% of all, connect nothing: they are
    class names, or short as "a dog" is. If the largest set still has more than 10 rows and more
    than 20% of all, and more than any group, file or array row has, then only the items of one
    modality connect: files and array rows rather than texts, else those that leave fewer rows
    apart from others of the same item. Sets are numbered in the order of groups, or else of rows.

    >>> pairs = Pairs({"x": np.eye(4), "y": ["a", "b", "a", "c"]})
    >>> connected_rows(pairs).tolist(), connected_rows(pairs, [5, 5, 4, 3]).tolist()
    ([0, 1, 0, 3], [1, 1, 1, 0])
    """
    n = len(pairs)
    base = np.arange(n) if group is None else np.unique(group, return_inverse=True)[1]
    items = {name: pairs.items(name) for name in pairs.names}
    keys = {name: _without_common(pairs.column(name), items[name]) for name in pairs.names}
    sets = _connect(base, keys.values())
    whole = [base, *(items[name] for name in pairs.names if not _is_text(pairs.column(name)))]
    most = max(10, n // 5, *(_counts(key).max(initial=0) for key in whole))
    if _counts(sets).max(initial=0) <= most:
        return sets

    def apart(name: str) -> tuple[bool, int]:
        """Whether `name` is text, and how many rows it leaves apart from others of their item."""
        (other,) = set(pairs.names) - {name}
        low, high = np.full(n, n), np.full(n, -1)
        np.minimum.at(low, numbers[other], alone[name])
        np.maximum.at(high, numbers[other], alone[name])
        return _is_text(pairs.column(name)), int((low < high)[numbers[other]].sum())

    alone = {name: _connect(base, [key]) for name, key in keys.items()}
    numbers = {name: np.unique(item, return_inverse=True)[1] for name, item in items.items()}
    return alone[min(pairs.names, key=apart)]


def _is_text(rows: Rows) -> bool:
    return rows.is_text and not rows.files


def _without_common(rows: Rows, items: NDArray[np.int64]) -> NDArray[np.int64]:
    """The items of rows (n,); rows of a common text have a number of their own each."""
    n = len(items)
    if not _is_text(rows):
        return items
    common = _counts(items) > max(10, n // 50)
    return np.where(common, items.max(initial=0) + 1 + np.arange(n), items)


def _counts(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many rows have the key of each row (n,)."""
    _, codes, counts = np.unique(keys, return_inverse=True, return_counts=True)
    return counts[codes]


def _connect(base: NDArray[np.int64], keys: Iterable[NDArray[np.int64]]) -> NDArray[np.int64]:
    """The least value of `base` (n,) in the connected component of each row.

    Rows are connected that have the same value in `base` or in one of the `keys`.
    """
    numbers = components(base, *keys)
    least = np.full(numbers.max(initial=-1) + 1, np.iinfo(np.int64).max)
    np.minimum.at(least, numbers, base)
    return least[numbers]


def _connected_split(
    pairs: Pairs, group: NDArray[Any] | None, valid: float | int, test: float | int, seed: int
) -> Split:
    """Split the sets of `connected_rows`, with sizes in groups, or in rows if there are none."""
    n = len(pairs)
    for name in pairs.names:
        if n > 1 and len(np.unique(pairs.items(name))) == 1:
            raise InputError(
                f"All {n:,} rows have the same {name}, so there is nothing to find by it; check "
                f"which column or file {name} is."
            )
    unit = np.arange(n) if group is None else np.unique(group, return_inverse=True)[1]
    distinct, sets = np.unique(connected_rows(pairs, group), return_inverse=True)
    set_of_unit = np.zeros(unit.max(initial=-1) + 1, dtype=np.int64)
    set_of_unit[unit] = sets
    sizes = np.bincount(set_of_unit, minlength=len(distinct))
    n_valid, n_test = _part_sizes(len(set_of_unit), valid, test)
    part = np.zeros(len(distinct), dtype=np.int8)
    order = _random_order(len(distinct), seed)
    for number, wanted in ((2, n_test), (1, n_valid)):
        order = order[part[order] == 0]
        part[_fill(order, sizes, wanted)] = number
    if part.all():
        raise InputError(
            f"The {n:,} rows are only {len(distinct):,} sets of rows that share their "
            f"{' or '.join(pairs.names)} or group and stay together, too few for three parts. "
            "Lower valid or test, or split them all the same (--allow-leaks)."
        )
    train, valid_rows, test_rows = (np.flatnonzero(part[sets] == p) for p in range(3))
    return Split(train, valid_rows, test_rows)


def _fill(order: NDArray[np.int64], sizes: NDArray[np.int64], wanted: int) -> list[int]:
    """The sets, in this order, that fit into a part of the wanted size; at least one."""
    chosen, left = [], wanted
    for number in order.tolist():
        if left == 0:
            break
        if sizes[number] <= left:
            chosen.append(number)
            left -= int(sizes[number])
    return chosen or order[: min(1, wanted)].tolist()


def _random_order(n: int, seed: int) -> NDArray[np.int64]:
    check("seed", seed, Whole(at_least=0))
    # Raw bits, since NumPy promises their stream for all versions, which it does not for shuffles.
    return np.argsort(np.random.PCG64(seed).random_raw(n), kind="stable").astype(np.int64)


def _part_sizes(n: int, valid: float | int, test: float | int) -> tuple[int, int]:
    """The counts of validation and test rows of `n`, which must leave some to train on."""
    n_valid, n_test = part_size(valid, n, "valid"), part_size(test, n, "test")
    if n_valid + n_test >= n:
        raise InputError(
            f"valid ({n_valid}) and test ({n_test}) leave nothing of {n} to train on; lower them."
        )
    return n_valid, n_test


def split_name(value: str) -> str | None:
    """The part that a word stands for, or None.

    >>> split_name(" Validation"), split_name("other")
    ('valid', None)
    """
    return _NAMES.get(value.strip().lower())


def part_size(size: float | int, n: int, name: str) -> int:
    """A fraction or count of `n` as a count."""
    if isinstance(size, float):
        if not 0 <= size < 1:
            raise InputError(f"{name} must be a fraction in [0, 1) or a whole number, got {size}.")
        return max(1, round(size * n)) if size > 0 else 0
    check(name, size, Whole(at_least=0))
    return int(size)
