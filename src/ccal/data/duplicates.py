"""Which items of a modality are the same: rows of an array, texts, or files."""

import hashlib
import os
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccal.data.arrays import chunks


def item_numbers(source: NDArray[Any] | Sequence[str], *, files: bool) -> NDArray[np.int64]:
    """Numbers (n,) of the rows of an array or of n texts: equal for identical content.

    Texts that are the paths of `files` stand for their bytes. Arrays and files are read a piece at
    a time. The different items are numbered from 0 in the order in which they first occur.

    >>> item_numbers(["a dog", "a cat", "a dog"], files=False)
    array([0, 1, 0])
    >>> item_numbers(np.array([[1.0, 2.0], [1.0, 2.0], [0.0, 2.0]]), files=False)
    array([0, 0, 1])
    """
    if isinstance(source, np.ndarray):
        return _number(_row_digests(source))
    if files:
        keys = _file_keys(list(dict.fromkeys(source)))
        return _number(keys[path] for path in source)
    return _number(source)


def _number(keys: Iterable[Hashable]) -> NDArray[np.int64]:
    """A number for each key, from 0 in the order of first occurrence."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)


def _row_digests(array: NDArray[Any]) -> Iterator[bytes]:
    for _, rows in chunks(array):
        # A void of a row's width: one bytes object a row.
        for row in np.ascontiguousarray(rows).view(f"V{rows.itemsize * rows.shape[1]}").ravel():
            yield hashlib.blake2b(row, digest_size=16).digest()


def _file_keys(paths: Sequence[str]) -> dict[str, Hashable]:
    """What identifies each file: its bytes if another has the same size, else its path."""
    sizes = {path: os.path.getsize(path) if os.path.isfile(path) else -1 for path in paths}
    count = Counter(sizes.values())
    keys: dict[str, Hashable] = {}
    for path, size in sizes.items():
        keys[path] = path
        if size >= 0 and count[size] > 1:
            with open(path, "rb") as file:
                keys[path] = hashlib.file_digest(file, "blake2b").digest()
    return keys
