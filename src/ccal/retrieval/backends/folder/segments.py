"""Segments: the vectors of one modality between two row numbers, in files that never change.

`NAME.vectors` has the row numbers (n,) int64, ascending, and the unit vectors (n, dim).
`NAME.items` has the bounds of records (n + 1,) int64, and the records, in the same order; see
`answers`. `NAME.faiss` or `NAME.codes` is for approximate search; see `candidates`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ccal.array_files import ArrayFile, DamagedFileError, write_array_file
from ccal.retrieval.exact import Floats, Ints

SPAN = "modality = ? AND row BETWEEN ? AND ?"
Span = tuple[str, int, int]
"""Values of the condition SPAN: a modality, the first and the last row."""


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

    def file(self, kind: Literal["vectors", "items", "faiss", "codes"]) -> str:
        """The name of one of its files."""
        return f"{self.name}.{kind}"

    @property
    def span(self) -> Span:
        """The rows it may hold."""
        return self.modality, self.first, self.last


class VectorsFile(ArrayFile):
    """`rows` (n,) int64 ascending, `vectors` (n, dim) float32 or float16."""

    rows: Ints
    vectors: Floats

    def __init__(self, path: Path) -> None:
        super().__init__(path, _vectors_layout)
        self.rows, self.vectors = self.arrays


class ItemsFile(ArrayFile):
    """Records of `count` items by position."""

    def __init__(self, path: Path, count: int) -> None:
        super().__init__(path, _items_layout)
        if self.about["count"] != count:
            raise DamagedFileError(f"{path}: {count:,} items expected, got {self.about['count']:,}")
        # A memoryview gives single entries in a fraction of the time of an array.
        self._bounds, self._content = (array.data for array in self.arrays)

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def __getitem__(self, position: int) -> bytes:
        return self._content[self._bounds[position] : self._bounds[position + 1]].tobytes()


def write_vectors(path: Path, rows: Ints, vectors: Floats) -> None:
    """Write row numbers (n,), ascending, and vectors (n, dim)."""
    about = {"count": len(rows), "dim": vectors.shape[1], "dtype": vectors.dtype.name}
    write_array_file(path, about, rows, vectors)


def write_items(path: Path, records: Sequence[bytes]) -> None:
    """Write records."""
    bounds = np.zeros(len(records) + 1, np.int64)
    np.cumsum([len(record) for record in records], out=bounds[1:])
    about = {"count": len(records), "bytes": int(bounds[-1])}
    write_array_file(path, about, bounds, np.frombuffer(b"".join(records), np.uint8))


def _vectors_layout(about: dict[str, Any]) -> list[tuple[Any, tuple[int, ...]]]:
    count, dim = int(about["count"]), int(about["dim"])
    return [(np.int64, (count,)), (str(about["dtype"]), (count, dim))]


def _items_layout(about: dict[str, Any]) -> list[tuple[Any, tuple[int, ...]]]:
    return [(np.int64, (int(about["count"]) + 1,)), (np.uint8, (int(about["bytes"]),))]
