"""torch7 files, byte by byte: 4-byte integers, 8-byte longs, strings with their length."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

KINDS = {"u1": "Byte", "i1": "Char", "i2": "Short", "i4": "Int", "i8": "Long"}
KINDS |= {"f4": "Float", "f8": "Double"}


def ints(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}i", *values)


def longs(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}q", *values)


def text(value: str) -> bytes:
    return ints(len(value)) + value.encode()


def torch_object(number: int, name: str, body: bytes, *, version: bool = True) -> bytes:
    return ints(4, number) + (text("V 1") if version else b"") + text(name) + body


def storage(array: NDArray[Any], *, number: int = 2, version: bool = True) -> bytes:
    name = f"torch.{KINDS[array.dtype.str[1:]]}Storage"
    body = longs(array.size) + array.astype(array.dtype.newbyteorder("<")).tobytes()
    return torch_object(number, name, body, version=version)


def tensor(
    array: NDArray[Any],
    *,
    number: int = 1,
    sizes: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    offset: int = 1,
    held: bytes | None = None,
    version: bool = True,
) -> bytes:
    """A tensor of an array; other sizes, strides, offset or storage may be claimed."""
    sizes = array.shape if sizes is None else sizes
    if strides is None:
        strides = [int(np.prod(sizes[i + 1 :], dtype=np.int64)) for i in range(len(sizes))]
    held = storage(array, number=number + 1, version=version) if held is None else held
    body = ints(len(sizes)) + longs(*sizes, *strides, offset) + held
    kind = KINDS[array.dtype.str[1:]]
    return torch_object(number, f"torch.{kind}Tensor", body, version=version)


def number(value: float) -> bytes:
    return ints(1) + struct.pack("<d", value)


def string(value: str) -> bytes:
    return ints(2) + text(value)


def table(index: int, *items: tuple[bytes, bytes]) -> bytes:
    return ints(3, index, len(items)) + b"".join(key + value for key, value in items)


def write_t7(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path
