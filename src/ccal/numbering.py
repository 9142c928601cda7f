"""Keys of rows as numbers: which rows have equal keys, and which hang together through them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


def numbered(keys: NDArray[Any]) -> tuple[Integers, Integers]:
    """Number different keys (n,) from 0 in the order in which they first occur.

    Returns the row at which each first occurs, and the number (n,) of each row.

    >>> numbered(np.array(["b", "a", "b"]))
    (array([0, 1]), array([0, 1, 0]))
    """
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    order = first.argsort()
    numbers = np.empty(len(first), dtype=np.int64)
    numbers[order] = np.arange(len(first))
    return first[order].astype(np.int64), numbers[inverse.reshape(-1)]


def components(*keys: NDArray[Any]) -> Integers:
    """Number (n,) the rows, equally where a chain of equal keys connects them.

    Each of `keys` (n,) connects the rows in which it is the same. Numbers count from 0 in the order
    in which they first occur.

    >>> components(np.array([0, 0, 1, 2]), np.array(["a", "b", "b", "c"]))
    array([0, 0, 0, 1])
    """
    columns = [_sorted(numbered(column)[1]) for column in keys]
    labels = np.arange(len(keys[0]))
    while True:
        before = labels
        for numbers, order, starts in columns:
            # The label of a row is the number of a row that it is connected with.
            labels = np.minimum.reduceat(labels[order], starts)[numbers]
        labels = labels[labels]
        if np.array_equal(labels, before):
            return numbered(labels)[1]


def _sorted(numbers: Integers) -> tuple[Integers, Integers, Integers]:
    """Numbers, the order that sorts them, and where each begins in this order."""
    order = numbers.argsort(kind="stable")
    starts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
    return numbers, order, starts
