"""Files of vectors: written once, memory-mapped, checked before they answer.

A file is a header of 4096 bytes (JSON, padded with zeros), the row numbers (n,) int64 in rising
order, padded to 4096 bytes, and the unit vectors (n, dim). The header holds the CRC-32 of all that
follows it, and ends with its own.
"""

from __future__ import annotations

import json
import mmap
import os
import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["BadSegmentError", "Segment", "write_file", "write_segment"]

_PAGE = 4096
_FORMAT = 1


class BadSegmentError(Exception):
    """A segment is missing or damaged; its content can be had from the truth."""


class Segment:
    """An open segment: `rows` (n,) int64 rising, `vectors` (n, dim) float32 or float16.

    Opening looks at the header and the size of the file, which takes no time; `verify` reads all
    of it, once, and must come before the first answer.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._verified = False
        try:
            with path.open("rb") as file:
                about = _header(file.read(_PAGE))
                count, dim = int(about["count"]), int(about["dim"])
                dtype = np.dtype(str(about["dtype"]))
                begin = _PAGE + _pad(8 * count)
                size = begin + count * dim * dtype.itemsize
                if os.fstat(file.fileno()).st_size != size:
                    raise ValueError(f"{size:,} bytes expected")
                # Private and writable: torch warns of memory that it may not write to.
                self._map = mmap.mmap(file.fileno(), size, mmap.MAP_PRIVATE)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BadSegmentError(f"{path}: {error}") from error
        self._crc = about["crc"]
        self.rows: NDArray[np.int64] = np.frombuffer(self._map, np.int64, count, _PAGE)
        vectors = np.frombuffer(self._map, dtype, count * dim, begin).reshape(count, dim)
        self.vectors: Tensor = torch.from_numpy(vectors)

    def verify(self) -> None:
        """Compare the content with its checksum, the first time."""
        if self._verified:
            return
        if zlib.crc32(memoryview(self._map)[_PAGE:]) != self._crc:
            raise BadSegmentError(f"{self.path}: the checksum does not match")
        self._verified = True


def write_segment(path: Path, rows: NDArray[np.int64], vectors: NDArray[np.floating]) -> None:
    """Write a segment that is whole and on disk before it gets its name."""
    padding = bytes(_pad(rows.nbytes) - rows.nbytes)
    content = np.ascontiguousarray(vectors).view(np.uint8).data
    body: list[bytes | memoryview] = [rows.tobytes(), padding, content]
    crc = 0
    for part in body:
        crc = zlib.crc32(part, crc)
    about = {
        "format": _FORMAT,
        "count": len(rows),
        "dim": vectors.shape[1],
        "dtype": vectors.dtype.name,
        "crc": crc,
    }
    text = json.dumps(about).encode()
    header = text.ljust(_PAGE - 4, b"\0")
    write_file(path, [header + zlib.crc32(header).to_bytes(4, "little"), *body])


def write_file(path: Path, parts: list[bytes | memoryview]) -> None:
    """Write parts to a file that appears under its name when it is on disk, as the name is then."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), 0o644)
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder last."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _header(page: bytes) -> dict[str, Any]:
    if len(page) < _PAGE or zlib.crc32(page[:-4]) != int.from_bytes(page[-4:], "little"):
        raise ValueError("the header is damaged")
    about = json.loads(page[:-4].rstrip(b"\0"))
    if about["format"] != _FORMAT:
        raise ValueError(f"format {about['format']}, this version reads {_FORMAT}")
    return dict(about)


def _pad(size: int) -> int:
    """The next multiple of a page."""
    return -(-size // _PAGE) * _PAGE
