"""Segments: the vectors of one modality between two row numbers, in files that never change.

`NAME.vectors` has the row numbers (n,) int64, ascending, and the unit vectors (n, dim).
`NAME.items` has the bounds of records (n + 1,) int64, and the records, in the same order.
`NAME.faiss` or `NAME.codes` is for approximate search; see `candidates`.

A record holds id, metadata as JSON, and the file if there is one, separated by zero bytes, which
none of them contains.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from ccal.array_files import ArrayFile, DamagedFileError, write_array_file
from ccal.retrieval.answers import Facts

SPAN = "modality = ? AND row BETWEEN ? AND ?"


@dataclass(frozen=True)
class Segment:
    """A segment as the item store lists it.

    `approximate` is the CRC-32 of its faiss file, 0 if it has codes instead, None if neither.
    """

    name: str
    modality: str
    first: int
    last: int
    count: int = 0
    approximate: int | None = None

    @property
    def vectors(self) -> str:
        """The file of vectors."""
        return f"{self.name}.vectors"

    @property
    def items(self) -> str:
        """The file of records."""
        return f"{self.name}.items"

    @property
    def faiss(self) -> str:
        """The file for approximate search by cells."""
        return f"{self.name}.faiss"

    @property
    def codes(self) -> str:
        """The file for approximate search by binary codes."""
        return f"{self.name}.codes"

    @property
    def span(self) -> tuple[str, list[object]]:
        """The rows it may hold, as an SQL condition and its values."""
        return SPAN, [self.modality, self.first, self.last]


class VectorsFile(ArrayFile):
    """`rows` (n,) int64 ascending, `vectors` (n, dim) float32 or float16."""

    rows: NDArray[np.int64]
    vectors: NDArray[np.floating]

    def __init__(self, path: Path) -> None:
        super().__init__(path, _vectors_layout)
        self.rows, self.vectors = self.arrays


class ItemsFile(ArrayFile, Sequence[bytes]):
    """Records of `count` items by position, as they were after `changes` changes.

    Items that were removed by then have an empty record.
    """

    def __init__(self, path: Path, count: int) -> None:
        super().__init__(path, _items_layout)
        if self.about["count"] != count:
            raise DamagedFileError(f"{path}: {count:,} items expected, got {self.about['count']:,}")
        self.changes = int(self.about["changes"])
        # A memoryview gives single entries in a fraction of the time of an array.
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
    """Write row numbers (n,), ascending, and vectors (n, dim)."""
    about = {"count": len(rows), "dim": vectors.shape[1], "dtype": vectors.dtype.name}
    write_array_file(path, about, rows, vectors)


def write_items(path: Path, records: Sequence[bytes], changes: int) -> None:
    """Write records as they are after a number of changes."""
    bounds = np.zeros(len(records) + 1, np.int64)
    np.cumsum([len(record) for record in records], out=bounds[1:])
    about = {"count": len(records), "bytes": int(bounds[-1]), "changes": changes}
    write_array_file(path, about, bounds, np.frombuffer(b"".join(records), np.uint8))


def pack_record(id: bytes, metadata: bytes, file: bytes | None) -> bytes:
    """A record of its fields, all of them UTF-8.

    >>> pack_record(b"image-1", b"{}", None)
    b'image-1\\x00{}'
    """
    return b"\0".join((id, metadata) if file is None else (id, metadata, file))


def unpack_record(modality: str, record: bytes) -> Facts:
    """The fields of an item.

    >>> unpack_record("text", b'b\\0{"n": 1}\\0b.txt')
    ('b', 'text', {'n': 1}, 'b.txt')
    """
    id, metadata, *file = record.decode().split("\0")
    about = {} if metadata == "{}" else json.loads(metadata)
    return id, modality, about, file[0] if file else None


def _vectors_layout(about: dict[str, Any]) -> list[tuple[Any, tuple[int, ...]]]:
    count, dim = int(about["count"]), int(about["dim"])
    return [(np.int64, (count,)), (str(about["dtype"]), (count, dim))]


def _items_layout(about: dict[str, Any]) -> list[tuple[Any, tuple[int, ...]]]:
    return [(np.int64, (int(about["count"]) + 1,)), (np.uint8, (int(about["bytes"]),))]
