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
    links = []
    for key in keys:
        order = key.argsort(kind="stable")
        same = key[order[1:]] == key[order[:-1]]
        links.append(np.stack([order[1:][same], order[:-1][same]]))
    one, two = np.concatenate(links, axis=1)
    root = np.arange(len(keys[0]))
    while True:
        one, two = root[one], root[two]
        apart = one != two
        if not apart.any():
            return numbered(root)[1]
        # Each root that has a smaller neighbour joins the smallest: at least half of the roots go.
        one, two = one[apart], two[apart]
        np.minimum.at(root, np.maximum(one, two), np.minimum(one, two))
        while not np.array_equal(root, above := root[root]):
            root = above
