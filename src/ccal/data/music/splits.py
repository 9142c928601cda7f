"""Train, validation and test tunes, with no melody on two sides."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ccal.data.splits import Split, part_size
from ccal.errors import InputError

__all__ = ["split_tunes_by_melody"]


def split_tunes_by_melody(
    groups: Sequence[int], *, valid: float | int = 0.1, test: float | int = 0.1, seed: int = 0
) -> Split:
    """Split tunes, given the melody group (n,) of each, so that those of one group stay together.

    `valid` and `test` are fractions (float) or counts (int) of tunes; whole groups, in an order
    drawn with the seed, are taken while they fit. The same seed gives the same split on every
    machine, and the test tunes do not depend on `valid`.

    >>> split = split_tunes_by_melody([0, 0, 1, 2, 3, 3, 4, 5], valid=2, test=2)
    >>> len(split.train), len(split.valid), len(split.test)
    (4, 2, 2)
    """
    keys = np.asarray(groups)
    n = len(keys)
    counts = {"test": part_size(test, n, "test"), "valid": part_size(valid, n, "valid")}
    if sum(counts.values()) >= n:
        raise InputError(
            f"valid ({counts['valid']}) and test ({counts['test']}) leave nothing of {n} tunes "
            "to train on; lower them."
        )
    if seed < 0:
        raise InputError(f"seed must be 0 or more, got {seed}.")
    distinct = np.unique(keys)
    # Raw bits, since NumPy promises their stream for all versions, which it does not for shuffles.
    order = np.argsort(np.random.PCG64(seed).random_raw(len(distinct)), kind="stable")
    waiting = [np.flatnonzero(keys == key) for key in distinct[order]]
    parts = {name: np.empty(0, dtype=np.int64) for name in counts}
    for name, wanted in counts.items():
        rest = []
        for members in waiting:
            if len(parts[name]) + len(members) <= wanted:
                parts[name] = np.concatenate((parts[name], members))
            else:
                rest.append(members)
        waiting = rest
    train = np.concatenate(waiting) if waiting else np.empty(0, dtype=np.int64)
    return Split(np.sort(train), np.sort(parts["valid"]), np.sort(parts["test"]))
