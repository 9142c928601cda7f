"""Rows that are mostly zero, kept without their zeros and filled in when asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["SparseRows"]


class SparseRows:
    """A matrix (n, d) by its non-zero values, row by row; indexing gives dense float32 rows.

    Row i has the values `values[offsets[i] : offsets[i + 1]]` in the columns of the same places.

    >>> rows = SparseRows(np.array([0, 2, 2, 3]), np.array([0, 3, 1]), np.ones(3, np.float32), 4)
    >>> rows[[2, 0]]
    array([[0., 1., 0., 0.], [1., 0., 0., 1.]], dtype=float32)
    """

    def __init__(
        self,
        offsets: NDArray[np.int64],
        columns: NDArray[np.int64],
        values: NDArray[np.float32],
        d: int,
    ) -> None:
        self.offsets, self.columns, self.values = offsets, columns, values
        self.shape = (len(offsets) - 1, d)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> NDArray[np.float32]:
        rows = np.arange(len(self))[index]
        starts = self.offsets[rows]
        lengths = self.offsets[rows + 1] - starts
        target = np.repeat(np.arange(len(rows)), lengths)
        # Places of the values: each row's start, counted on from there.
        places = np.arange(lengths.sum()) + np.repeat(starts - lengths.cumsum() + lengths, lengths)
        dense = np.zeros((len(rows), self.shape[1]), dtype=np.float32)
        dense[target, self.columns[places]] = self.values[places]
        return dense
