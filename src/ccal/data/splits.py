"""Train, validation and test rows: at random, disjoint in a key, or as a column says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccal.bounds import Options, Whole, check
from ccal.data.pairs import Pairs
from ccal.errors import InputError

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
    n_valid, n_test = part_size(valid, n, "valid"), part_size(test, n, "test")
    if n_valid + n_test >= n:
        raise InputError(
            f"valid ({n_valid}) and test ({n_test}) leave nothing of {n} to train on; lower them."
        )
    check("seed", seed, Whole(at_least=0))
    # Raw bits, since NumPy promises their stream for all versions, which it does not for shuffles.
    order = np.argsort(np.random.PCG64(seed).random_raw(n), kind="stable").astype(np.int64)
    parts = np.split(order, [n_test, n_test + n_valid])
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
) -> Split:
    """Split pairs by rows, groups or labels; by default by groups if there are any.

    Pairs of one group show the same thing, so that splitting them at random would leak.

    >>> pairs = Pairs({"x": np.eye(4), "y": np.eye(4)}, group=[0, 0, 1, 1])
    >>> split = split_pairs(pairs, valid=1, test=0)
    >>> len(split.train), len(split.valid)
    (2, 2)
    """
    if by is None:
        by = "random" if pairs.group is None else "group"
    if by == "random":
        return random_split(len(pairs), valid=valid, test=test, seed=seed)
    check("by", by, Options("random", "group", "label"))
    keys = pairs.group if by == "group" else pairs.label
    if keys is None:
        raise InputError(f"cannot split by {by}: the pairs have no {by} column.")
    return disjoint_split(keys, valid=valid, test=test, seed=seed)


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
