"""The files of a segment: its vectors, and what is known of their items.

`NAME.vectors` has the row numbers (n,) int64 in rising order, padded to 4096 bytes, and the unit
vectors (n, dim). `NAME.items` has where records begin and end (n + 1,) int64, padded likewise, and
the records, one for each vector in the same order; see `ccal.retrieval.embedded.records`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from ccal.array_files import ArrayFile, DamagedFileError, write_array_file

__all__ = ["ItemsFile", "VectorsFile", "write_items", "write_vectors"]


class VectorsFile(ArrayFile):
    """`rows` (n,) int64 rising, `vectors` (n, dim) float32 or float16."""

    rows: NDArray[np.int64]
    vectors: NDArray[np.floating]

    def __init__(self, path: Path) -> None:
        super().__init__(path, _vectors_layout)
        self.rows, self.vectors = self.arrays


class ItemsFile(ArrayFile, Sequence[bytes]):
    """Records of `count` items by their position, read when they are asked for.

    They are as the truth had them after `changes` changes; items that were gone by then have an
    empty record.
    """

    def __init__(self, path: Path, count: int) -> None:
        super().__init__(path, _items_layout)
        if self.about["count"] != count:
            raise DamagedFileError(f"{path}: {count:,} items expected, got {self.about['count']:,}")
        self.changes = int(self.about["changes"])
        # Single entries of a memoryview are had in a fraction of the time of an array's.
        self._bounds, self._content = (array.data for array in self.arrays)

    def __len__(self) -> int:
        return len(self._bounds) - 1

    @overload
    def __getitem__(self, position: int) -> bytes: ...
    @overload
    def __getitem__(self, position: slice) -> list[bytes]: ...
    def __getitem__(self, position: int | slice) -> bytes | list[bytes]:
        if isinstance(position, slice):
            return [self[n] for n in range(*position.indices(len(self)))]
        return self._content[self._bounds[position] : self._bounds[position + 1]].tobytes()


def write_vectors(path: Path, rows: NDArray[np.int64], vectors: NDArray[np.floating]) -> None:
    """Write row numbers (n,), rising, and vectors (n, dim)."""
    about = {"count": len(rows), "dim": vectors.shape[1], "dtype": vectors.dtype.name}
    write_array_file(path, about, rows, vectors)


def write_items(path: Path, records: Sequence[bytes], changes: int) -> None:
    """Write records, as the truth has them after a number of changes."""
    bounds = np.zeros(len(records) + 1, np.int64)
    np.cumsum([len(record) for record in records], out=bounds[1:])
    about = {"count": len(records), "bytes": int(bounds[-1]), "changes": changes}
    write_array_file(path, about, bounds, np.frombuffer(b"".join(records), np.uint8))


def _vectors_layout(about: dict[str, Any]) -> list[tuple[Any, tuple[int, ...]]]:
    count, dim = int(about["count"]), int(about["dim"])
    return [(np.int64, (count,)), (str(about["dtype"]), (count, dim))]


def _items_layout(about: dict[str, Any]) -> list[tuple[Any, tuple[int, ...]]]:
    return [(np.int64, (int(about["count"]) + 1,)), (np.uint8, (int(about["bytes"]),))]
