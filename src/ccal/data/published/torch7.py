"""Tensors of torch7 (Lua), as `torch.save` of that time wrote them: binary, little-endian."""

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccal.data.published.plain_files import FilePath, existing_file
from ccal.errors import InputError

_NIL, _NUMBER, _STRING, _TABLE, _TORCH, _BOOLEAN = range(6)
_TYPES = {
    "Byte": "u1",
    "Char": "i1",
    "Short": "<i2",
    "Int": "<i4",
    "Long": "<i8",
    "Float": "<f4",
    "Double": "<f8",
}
_MOST_DIMENSIONS, _MOST_LEVELS = 16, 16


class _DamagedError(Exception):
    """What is wrong with the bytes."""


def read_t7(path: FilePath) -> NDArray[Any]:
    """The tensor of a `.t7` file, which holds a tensor or a table with one tensor in it.

    Files in torch7's ASCII format, models and tensors of CUDA are refused. Memory use is bounded by
    the size of the file.

    >>> import struct
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> storage = struct.pack("<iii3si18sq2f", 4, 2, 3, b"V 1", 18, b"torch.FloatStorage", 2, 3, 4)
    >>> head = struct.pack("<iii3si17si", 4, 1, 3, b"V 1", 17, b"torch.FloatTensor", 1)
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "003.Sooty_Albatross.t7")
    ...     _ = path.write_bytes(head + struct.pack("<qqq", 2, 1, 1) + storage)
    ...     read_t7(path)
    array([3., 4.], dtype=float32)
    """
    path = existing_file(path)
    content = path.read_bytes()
    if content[:1].isdigit() and content[1:2] in (b"\n", b"\r", b" "):
        raise InputError(
            f"{path}: torch7's ASCII format; expected its binary format, the default of torch.save."
        )
    try:
        reader = _Reader(content)
        reader.value()
        tensors = reader.tensors
        if len(tensors) != 1:
            raise _DamagedError(f"expected one tensor, found {len(tensors)}")
    except _DamagedError as error:
        raise InputError(f"{path}: not a readable torch7 file ({error}).") from error
    return tensors[0]


class _Reader:
    """Reads values one after the other; an object that was read before is only a number."""

    def __init__(self, content: bytes) -> None:
        self.tensors: list[NDArray[Any]] = []
        self._content, self._at = content, 0
        self._objects: dict[int, NDArray[Any] | None] = {}

    def value(self, level: int = 0) -> NDArray[Any] | None:
        """Read a value; return the array of a tensor or a storage, None for all others."""
        if level > _MOST_LEVELS:
            raise _DamagedError(f"values are nested more than {_MOST_LEVELS} levels deep")
        kind = self._int()
        if kind == _NUMBER:
            self._take(8)
        elif kind == _STRING:
            self._string()
        elif kind == _BOOLEAN:
            self._int()
        elif kind in (_TABLE, _TORCH):
            number = self._int()
            if number not in self._objects:
                self._objects[number] = None
                read = self._table if kind == _TABLE else self._torch_object
                self._objects[number] = read(level + 1)
            return self._objects[number]
        elif kind != _NIL:
            raise _DamagedError(f"a value of type {kind} at byte {self._at - 4:,}")
        return None

    def _table(self, level: int) -> None:
        for _ in range(self._count(self._int(), 8)):  # key and value have 4 bytes or more
            self.value(level)
            self.value(level)

    def _torch_object(self, level: int) -> NDArray[Any]:
        name = self._string()
        if name.startswith("V "):  # the version, which old files leave out
            name = self._string()
        for kind, dtype in _TYPES.items():
            if name == f"torch.{kind}Storage":
                size = self._count(self._long(), np.dtype(dtype).itemsize)
                raw = self._take(size * np.dtype(dtype).itemsize)
                return np.frombuffer(raw, dtype).astype(np.dtype(dtype).newbyteorder("="))
            if name == f"torch.{kind}Tensor":
                return self._tensor(np.dtype(dtype).newbyteorder("="), level)
        raise _DamagedError(f"an object {name[:40]!r}; expected a torch.FloatTensor or the like")

    def _tensor(self, dtype: np.dtype[Any], level: int) -> NDArray[Any]:
        dimensions = self._int()
        if not 0 <= dimensions <= _MOST_DIMENSIONS:
            raise _DamagedError(f"a tensor of {dimensions} dimensions")
        sizes = [self._long() for _ in range(dimensions)]
        strides = [self._long() for _ in range(dimensions)]
        start = self._long() - 1
        storage = self.value(level)
        if storage is None or storage.dtype != dtype or storage.ndim != 1:
            raise _DamagedError(f"a tensor of {dtype} without a storage of its type")
        if min([*sizes, *strides, start], default=0) < 0 or not sizes or not prod(sizes):
            raise _DamagedError(f"a tensor of sizes {sizes}, strides {strides}, offset {start + 1}")
        last = start + sum((size - 1) * step for size, step in zip(sizes, strides, strict=True))
        # Without the first bound, strides of 0 would make a large array of a small storage.
        if prod(sizes) > len(storage) or last >= len(storage):
            raise _DamagedError(f"sizes {sizes} in a storage of {len(storage):,} numbers")
        steps = [0 if n == 1 else s * dtype.itemsize for n, s in zip(sizes, strides, strict=True)]
        view = np.lib.stride_tricks.as_strided(storage[start:], sizes, steps, writeable=False)
        tensor = np.ascontiguousarray(view)
        self.tensors.append(tensor)
        return tensor

    def _take(self, count: int) -> bytes:
        """The next bytes, so many."""
        self._count(count, 1)
        taken = self._content[self._at : self._at + count]
        self._at += count
        return taken

    def _count(self, count: int, size: int) -> int:
        """The count of things of `size` bytes or more, if the rest of the file can hold them."""
        left = len(self._content) - self._at
        if not 0 <= count * size <= left:
            raise _DamagedError(
                f"{count * size:,} bytes announced at byte {self._at:,}, but {left:,} are left"
            )
        return count

    def _int(self) -> int:
        return int.from_bytes(self._take(4), "little", signed=True)

    def _long(self) -> int:
        return int.from_bytes(self._take(8), "little", signed=True)

    def _string(self) -> str:
        return self._take(self._int()).decode("latin-1")
