"""Pairs as the towers take them: batches of feature rows, made once by the model's front ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccal.data import Pairs, Rows
from ccal.encoders import FrontEnd
from ccal.errors import InputError
from ccal.features import ImageFeatures, SparseRows, TfidfVectoriser
from ccal.training.progress import counting

__all__ = ["PairFeatures", "both"]


class _Rows(Protocol):
    @property
    def shape(self) -> tuple[int, ...]: ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: Any) -> Any: ...


class PairFeatures:
    """Feature rows of both modalities of n pairs; `batch(rows)` gives those of some as tensors.

    Arrays stay where they are, memory-mapped or not; texts go through the front end once and are
    kept without zeros.

    Attributes:
        groups: (n,) whole numbers, equal for pairs that show the same thing; None without groups.
        classes: (n,) whole numbers, the label of each pair; None without labels.
    """

    def __init__(self, pairs: Pairs, front_ends: Mapping[str, FrontEnd]) -> None:
        self._columns = [_column(pairs.column(n), front_ends.get(n), n) for n in pairs.names]
        self._set_keys(pairs.group, pairs.label)

    def _set_keys(self, group: NDArray[Any] | None, label: NDArray[Any] | None) -> None:
        self._keys = (group, label)
        self.groups, self.classes = _numbers(group), _numbers(label)

    def __len__(self) -> int:
        return len(self._columns[0])

    @property
    def widths(self) -> tuple[int, int]:
        """d_x and d_y."""
        x, y = (int(column.shape[1]) for column in self._columns)
        return x, y

    def never_negative(self, view: int) -> bool:
        """Whether view x (0) or y (1) was given as features, and none of them is below 0."""
        column = self._columns[view]
        if isinstance(column, SparseRows):
            return False
        return all(np.min(column[i : i + 4096]) >= 0 for i in range(0, len(column), 4096))

    def batch(self, rows: NDArray[np.int64] | slice) -> tuple[Tensor, Tensor]:
        """Features (m, d_x) and (m, d_y) of m pairs, float32."""
        x, y = (_tensor(column[rows]) for column in self._columns)
        return x, y

    def labels(self, rows: NDArray[np.int64] | slice) -> Tensor | None:
        """Whole numbers (m,), equal for pairs that must not count as negatives of each other.

        They are the pairs' labels, or without labels their groups; None without either.
        """
        numbers = self.groups if self.classes is None else self.classes
        return None if numbers is None else torch.from_numpy(numbers[rows])

    def batches(self, size: int = 1024) -> Iterator[tuple[Tensor, Tensor]]:
        """All pairs in order."""
        for start in range(0, len(self), size):
            yield self.batch(slice(start, start + size))

    def arrays(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """All features in memory: (n, d_x) and (n, d_y)."""
        x, y = self.batch(slice(None))
        return x.numpy(), y.numpy()


def both(one: PairFeatures, other: PairFeatures) -> PairFeatures:
    """The pairs of one and then those of the other."""
    joined = object.__new__(PairFeatures)
    joined._columns = [_Joined(a, b) for a, b in zip(one._columns, other._columns, strict=True)]
    joined._set_keys(*(_joined_keys(a, b) for a, b in zip(one._keys, other._keys, strict=True)))
    return joined


def _column(rows: Rows, front_end: FrontEnd | None, name: str) -> _Rows:
    if rows.is_text:
        if front_end is None:
            raise InputError(f"{name} is text, but there is no front end for it.")
        if isinstance(front_end, TfidfVectoriser):
            return front_end.sparse(rows[:])
        if isinstance(front_end, ImageFeatures):
            return front_end.transform(rows[:], progress=counting(f"{name}: features"))
        return front_end.transform(rows[:])
    if len(rows.shape) != 2:
        raise InputError(f"{name} must be an array of shape (pairs, features), got {rows.shape}.")
    return rows


class _Joined:
    """Rows of one source followed by those of another."""

    def __init__(self, first: _Rows, second: _Rows) -> None:
        self._first, self._second = first, second
        self.shape = (len(first) + len(second), *first.shape[1:])

    def __len__(self) -> int:
        return len(self._first) + len(self._second)

    def __getitem__(self, index: Any) -> NDArray[np.float32]:
        rows = np.arange(len(self))[index]
        late = rows >= len(self._first)
        first = np.asarray(self._first[rows[~late]], dtype=np.float32)
        second = np.asarray(self._second[rows[late] - len(self._first)], dtype=np.float32)
        result = np.empty((len(rows), *first.shape[1:]), dtype=np.float32)
        result[~late], result[late] = first, second
        return result


def _numbers(keys: NDArray[Any] | None) -> NDArray[np.int64] | None:
    """Keys of any kind as numbers from 0."""
    return None if keys is None else np.unique(keys, return_inverse=True)[1].astype(np.int64)


def _joined_keys(one: NDArray[Any] | None, other: NDArray[Any] | None) -> NDArray[Any] | None:
    return None if one is None or other is None else np.concatenate((one, other))


def _tensor(rows: Any) -> Tensor:
    return torch.from_numpy(np.array(rows, dtype=np.float32))
