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

from ccal.retrieval.embedded.files import PAGE, BadFileError, CheckedFile, padding, write_checked

__all__ = ["ItemsFile", "VectorsFile", "write_items", "write_vectors"]


class VectorsFile(CheckedFile):
    """`rows` (n,) int64 rising, `vectors` (n, dim) float32 or float16."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, _vectors_size)
        count, dim = self.about["count"], self.about["dim"]
        self.rows: NDArray[np.int64] = np.frombuffer(self.map, np.int64, count, PAGE)
        begin = PAGE + _padded(8 * count)
        flat = np.frombuffer(self.map, self.about["dtype"], count * dim, begin)
        self.vectors: NDArray[np.floating] = flat.reshape(count, dim)


class ItemsFile(CheckedFile, Sequence[bytes]):
    """Records of `count` items by their position, read when they are asked for.

    They are as the truth had them after `changes` changes; items that were gone by then have an
    empty record.
    """

    def __init__(self, path: Path, count: int) -> None:
        super().__init__(path, _items_size)
        if self.about["count"] != count:
            raise BadFileError(f"{path}: {count:,} items expected, got {self.about['count']:,}")
        self.changes = int(self.about["changes"])
        # Single entries of a memoryview are had in a fraction of the time of an array's.
        self._bounds = memoryview(self.map)[PAGE : PAGE + 8 * (count + 1)].cast("q")
        self._begin = PAGE + _padded(8 * (count + 1))

    def __len__(self) -> int:
        return len(self._bounds) - 1

    @overload
    def __getitem__(self, position: int) -> bytes: ...
    @overload
    def __getitem__(self, position: slice) -> list[bytes]: ...
    def __getitem__(self, position: int | slice) -> bytes | list[bytes]:
        if isinstance(position, slice):
            return [self[n] for n in range(*position.indices(len(self)))]
        start, end = self._bounds[position], self._bounds[position + 1]
        return self.map[self._begin + start : self._begin + end]


def write_vectors(path: Path, rows: NDArray[np.int64], vectors: NDArray[np.floating]) -> None:
    """Write row numbers (n,), rising, and vectors (n, dim)."""
    about = {"count": len(rows), "dim": vectors.shape[1], "dtype": vectors.dtype.name}
    content = np.ascontiguousarray(vectors).view(np.uint8).data
    write_checked(path, about, [rows.tobytes(), bytes(padding(rows.nbytes)), content])


def write_items(path: Path, records: Sequence[bytes], changes: int) -> None:
    """Write records, as the truth has them after a number of changes."""
    bounds = np.zeros(len(records) + 1, np.int64)
    np.cumsum([len(record) for record in records], out=bounds[1:])
    about = {"count": len(records), "bytes": int(bounds[-1]), "changes": changes}
    body = [bounds.tobytes(), bytes(padding(bounds.nbytes)), b"".join(records)]
    write_checked(path, about, body)


def _vectors_size(about: dict[str, Any]) -> int:
    count, itemsize = int(about["count"]), np.dtype(str(about["dtype"])).itemsize
    return _padded(8 * count) + count * int(about["dim"]) * itemsize


def _items_size(about: dict[str, Any]) -> int:
    return _padded(8 * (int(about["count"]) + 1)) + int(about["bytes"])


def _padded(size: int) -> int:
    return size + padding(size)
