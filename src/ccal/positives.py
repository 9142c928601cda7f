"""`Positives`: which items of two modalities belong together, where a query has several of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccal.errors import InputError
from ccal.numbering import Integers, components, numbered


class Positives:
    """Which rows of x (n, k) and of y (m, k) belong together.

    Pair i joins row `x_rows[i]` of x and row `y_rows[i]` of y; with `groups`, every x of a group
    belongs to every y of it. Every row of x and of y is in some pair. Memory is O(pairs), however
    large the groups are.

    Attributes:
        shape: (n, m).
        x_rows, y_rows: (pairs,) integers.
        groups: (pairs,) integers, or None.

    >>> Positives(torch.tensor([0, 0, 1]), torch.arange(3)).links()
    (tensor([0, 0, 1]), tensor([0, 1, 2]))
    >>> Positives(torch.arange(3), torch.arange(3), torch.tensor([7, 7, 9])).links()
    (tensor([0, 0, 1, 1, 2]), tensor([0, 1, 0, 1, 2]))
    """

    def __init__(self, x_rows: Tensor, y_rows: Tensor, groups: Tensor | None = None) -> None:
        pairs = len(x_rows)
        if not pairs or len(y_rows) != pairs or (groups is not None and len(groups) != pairs):
            lengths = [len(rows) for rows in (x_rows, y_rows, groups) if rows is not None]
            raise InputError(f"Positives are pairs, at least one, but the lengths are {lengths}.")
        self.x_rows, self.y_rows, self.groups = x_rows.long(), y_rows.long(), groups
        self.shape = _count(self.x_rows, "x"), _count(self.y_rows, "y")
        m = self.shape[1]
        if groups is None:
            group, count = torch.arange(pairs, device=x_rows.device), pairs
        else:
            names, group = groups.unique(return_inverse=True)
            count = len(names)
        # A member is an x in a group. Its y are a range of `_keys`, which ascend by group and y.
        members = (self.x_rows * count + group).unique()
        self._keys = (group * m + self.y_rows).unique()
        self._x, self._group = members // count, members % count * m
        self._start = torch.searchsorted(self._keys, self._group)
        self._stop = torch.searchsorted(self._keys, self._group + m)

    @classmethod
    def one_to_one(cls, n: int) -> Self:
        """Row i of x belongs to row i of y."""
        return cls(torch.arange(n), torch.arange(n))

    @classmethod
    def of_items(
        cls, x_items: NDArray[Any], y_items: NDArray[Any], groups: NDArray[Any] | None = None
    ) -> tuple[Self, Integers, Integers]:
        """The positives of pairs (p,) of numbered items, and the first pair of each x and each y.

        The rows of x and y are the different items, in the order of their first pairs.

        >>> import numpy as np
        >>> positives, x_first, y_first = Positives.of_items(np.array([5, 5, 3]), np.arange(3))
        >>> positives.x_rows, x_first
        (tensor([0, 0, 1]), array([0, 2]))
        """
        (x_first, x_rows), (y_first, y_rows) = numbered(x_items), numbered(y_items)
        group = None if groups is None else torch.from_numpy(numbered(groups)[1])
        return cls(torch.from_numpy(x_rows), torch.from_numpy(y_rows), group), x_first, y_first

    def to(self, device: torch.device) -> Positives:
        """The same on a device."""
        if self.x_rows.device == device:
            return self
        groups = None if self.groups is None else self.groups.to(device)
        return Positives(self.x_rows.to(device), self.y_rows.to(device), groups)

    def of_x(self, row: int) -> Tensor:
        """The rows of y that belong to a row of x."""
        members = (self._x == row).nonzero()[:, 0]
        first, last = int(members[0]), int(members[-1]) + 1
        return self.within(slice(first, last), 0, self.shape[1])[1]

    def of_y(self, row: int) -> Tensor:
        """The rows of x that belong to a row of y."""
        groups: Tensor = self._keys[self._keys % self.shape[1] == row] - row
        found: Tensor = self._x[torch.isin(self._group, groups)]
        return found

    def links(self) -> tuple[Tensor, Tensor]:
        """The row of x and the row of y of all positives, ascending by x; some may repeat."""
        return self._expand(slice(None), self._start, self._stop)

    def chunks(self, size: int = 8192) -> Iterator[tuple[Tensor, Tensor]]:
        """`links` in parts of about `size`, or of one x if it has more."""
        ends = (self._stop - self._start).cumsum(0)
        limits = torch.arange(0, int(ends[-1]), size, device=ends.device)[1:]
        bounds = (torch.searchsorted(ends, limits) + 1).tolist()
        for first, last in pairwise(dict.fromkeys((0, *bounds, len(ends)))):
            part = slice(first, last)
            yield self._expand(part, self._start[part], self._stop[part])

    def strips(self, height: int) -> list[Strip]:
        """The positives of each `height` consecutive rows of x."""
        starts = torch.arange(0, self.shape[0] + height, height, device=self._x.device)
        bounds = torch.searchsorted(self._x, starts).tolist()
        parts = [slice(first, last) for first, last in pairwise(bounds) if first < last]
        m = self.shape[1]
        low, high = self._keys[self._start] % m, self._keys[self._stop - 1] % m
        reach = torch.stack([torch.stack((low[p].min(), high[p].max())) for p in parts])
        return [Strip(self, part, *ends) for part, ends in zip(parts, reach.tolist(), strict=True)]

    def units(self) -> tuple[Integers, Integers]:
        """Which unit each x (n,) and each y (m,) belongs to, counted from 0 in the order of x.

        Items that are connected by pairs or groups are one unit: as queries they succeed or fail
        together.

        >>> Positives(torch.tensor([0, 0, 1]), torch.arange(3)).units()
        (array([0, 1]), array([0, 0, 1]))
        """
        x_rows, y_rows = self.x_rows.cpu().numpy(), self.y_rows.cpu().numpy()
        keys = () if self.groups is None else (self.groups.cpu().numpy(),)
        pairs = components(x_rows, y_rows, *keys)
        x_units, y_units = np.empty(self.shape[0], np.int64), np.empty(self.shape[1], np.int64)
        x_units[x_rows] = y_units[y_rows] = pairs
        first, x_numbers = numbered(x_units)
        numbers = np.empty(len(first), np.int64)
        numbers[x_units[first]] = np.arange(len(first))
        return x_numbers, numbers[y_units]

    def within(self, part: slice, left: int, right: int) -> tuple[Tensor, Tensor]:
        """The links of some members to the rows of y from `left` on, before `right`."""
        group = self._group[part]
        start = torch.searchsorted(self._keys, group + left)
        stop = torch.searchsorted(self._keys, group + min(right, self.shape[1]))
        return self._expand(part, start, stop)

    def _expand(self, part: slice, start: Tensor, stop: Tensor) -> tuple[Tensor, Tensor]:
        """The links of some members to the y at `start` to `stop` among the keys."""
        count = stop - start
        rows = self._x[part].repeat_interleave(count)
        shift = start - (count.cumsum(0) - count)
        at = torch.arange(len(rows), device=rows.device) + shift.repeat_interleave(count)
        return rows, self._keys[at] % self.shape[1]


@dataclass(frozen=True)
class Strip:
    """The positives of consecutive rows of x; they lie in the columns `low` to `high`."""

    positives: Positives
    members: slice
    low: int
    high: int

    def within(self, left: int, right: int) -> tuple[Tensor, Tensor] | None:
        """Rows of x and of y of the positives from column `left` on, before `right`."""
        if right <= self.low or left > self.high:
            return None
        return self.positives.within(self.members, left, right)


def _count(rows: Tensor, name: str) -> int:
    """How many rows there are, all of which must occur."""
    low, count = int(rows.min()), int(rows.max()) + 1
    if low < 0:
        raise InputError(f"Rows of {name} count from 0, got {low}.")
    alone = (torch.bincount(rows, minlength=count) == 0).nonzero()[:, 0]
    if len(alone):
        raise InputError(
            f"{len(alone)} of {count} rows of {name} are in no pair (the first is row "
            f"{int(alone[0])}); leave them out."
        )
    return count
