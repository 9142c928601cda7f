"""Files that are written once, memory-mapped, and checked before they answer.

A file is a header of 4096 bytes (JSON, padded with zeros) and a body. The header holds the CRC-32
of the body, and ends with its own.
"""

from __future__ import annotations

import json
import mmap
import os
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ccal.files import write_atomically

__all__ = [
    "PAGE",
    "BadFileError",
    "CheckedFile",
    "padding",
    "sync_folder",
    "write_checked",
    "write_file",
]

PAGE = 4096
_FORMAT = 1

Content = bytes | memoryview


class BadFileError(Exception):
    """A file is missing or damaged; its content can be had from the truth."""


class CheckedFile:
    """An open file: what its header says, and all of it as mapped memory.

    Opening looks at the header and the size, which takes no time; `verify` reads all of it and must
    come before the first answer. `size` tells from the header how long the body must be.
    """

    def __init__(self, path: Path, size: Callable[[dict[str, Any]], int]) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self.about = _header(file.read(PAGE))
                expected = PAGE + size(self.about)
                if os.fstat(file.fileno()).st_size != expected:
                    raise ValueError(f"{expected:,} bytes expected")
                # Private and writable: torch warns of memory that it may not write to.
                self.map = mmap.mmap(file.fileno(), expected, mmap.MAP_PRIVATE)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BadFileError(f"{path}: {error}") from error

    def verify(self) -> None:
        """Compare the content with its checksum."""
        if zlib.crc32(memoryview(self.map)[PAGE:]) != self.about["crc"]:
            raise BadFileError(f"{self.path}: the checksum does not match")


def padding(size: int) -> int:
    """Bytes from a size to the next multiple of a page."""
    return -size % PAGE


def write_checked(path: Path, about: dict[str, Any], body: Sequence[Content]) -> None:
    """Write a file that is whole and on disk before it gets its name."""
    crc = 0
    for part in body:
        crc = zlib.crc32(part, crc)
    text = json.dumps({"format": _FORMAT, **about, "crc": crc}).encode()
    header = text.ljust(PAGE - 4, b"\0")
    write_file(path, header + zlib.crc32(header).to_bytes(4, "little"), *body)


def write_file(path: Path, *parts: Content) -> None:
    """Write a file that is whole or not there, and whose name lasts, too."""
    write_atomically(path, *parts)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder last."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _header(page: bytes) -> dict[str, Any]:
    if len(page) < PAGE or zlib.crc32(page[:-4]) != int.from_bytes(page[-4:], "little"):
        raise ValueError("the header is damaged")
    about = json.loads(page[:-4].rstrip(b"\0"))
    if about["format"] != _FORMAT:
        raise ValueError(f"format {about['format']}, this version reads {_FORMAT}")
    return dict(about)
