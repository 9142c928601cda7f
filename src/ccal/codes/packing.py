"""Bits as bytes, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ccal.errors import InputError

__all__ = ["Packed", "check_bits", "check_packed", "pack", "unpack"]

Packed = NDArray[np.uint8]
"""Codes (n, bytes), eight bits a byte, the first bit the highest."""


def check_bits(bits: int) -> None:
    """Refuse codes that are not whole bytes."""
    if bits < 8 or bits % 8:
        raise InputError(f"bits must be a positive multiple of 8, as codes are bytes, got {bits}.")


def pack(bits: Tensor | NDArray[np.bool_]) -> Packed:
    """Bits (n, b), as booleans, into bytes (n, b / 8); b must be a multiple of 8.

    >>> pack(np.array([[True, False, False, False, False, False, True, True]]))
    array([[131]], dtype=uint8)
    """
    array = bits.cpu().numpy() if isinstance(bits, Tensor) else np.asarray(bits)
    if array.ndim != 2 or array.dtype != np.bool_:
        raise InputError(
            f"bits must be booleans of shape (n, bits), got {array.dtype} {array.shape}."
        )
    check_bits(array.shape[1])
    return np.packbits(array, axis=1)


def unpack(packed: Packed) -> NDArray[np.bool_]:
    """Bytes (n, b) into bits (n, 8 b).

    >>> unpack(np.array([[131]], dtype=np.uint8)).astype(int)
    array([[1, 0, 0, 0, 0, 0, 1, 1]])
    """
    return np.unpackbits(check_packed(packed, None, "packed"), axis=1).astype(np.bool_)


def check_packed(packed: Any, width: int | None, name: str) -> Packed:
    """Codes as an array (n, width); a single code (width,) and other types are refused."""
    array = np.asarray(packed.cpu() if isinstance(packed, Tensor) else packed)
    expected = "bytes" if width is None else width
    wrong = array.ndim != 2 or array.shape[1] != (width or array.shape[1]) or not array.shape[1]
    if array.dtype != np.uint8 or wrong:
        raise InputError(
            f"{name} must be packed codes, uint8 of shape (n, {expected}), got {array.dtype} "
            f"{array.shape}; BinaryCodes.encode makes them."
        )
    return array
