from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from ccal.codes import pack, unpack
from ccal.errors import InputError


@settings(deadline=None)
@given(st.integers(0, 5), st.integers(1, 5), st.data())
def test_bits_come_back(rows: int, width: int, data: st.DataObject) -> None:
    bits = data.draw(arrays(np.bool_, (rows, 8 * width)))
    packed = pack(bits)
    assert packed.shape == (rows, width)
    assert packed.dtype == np.uint8
    np.testing.assert_array_equal(unpack(packed), bits)
    np.testing.assert_array_equal(pack(torch.from_numpy(bits)), packed)


@settings(deadline=None)
@given(arrays(np.uint8, array_shapes(min_dims=2, max_dims=2)))
def test_bytes_come_back(packed: np.ndarray[tuple[int, int], np.dtype[np.uint8]]) -> None:
    np.testing.assert_array_equal(pack(unpack(packed)), packed)


@pytest.mark.parametrize("width", [0, 1, 7, 12])
def test_codes_are_whole_bytes(width: int) -> None:
    with pytest.raises(InputError, match="multiple of 8"):
        pack(np.zeros((2, width), dtype=np.bool_))


@pytest.mark.parametrize("bits", [np.zeros((2, 8)), np.zeros(8, dtype=np.bool_)])
def test_only_booleans_are_bits(bits: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> None:
    with pytest.raises(InputError, match="booleans of shape"):
        pack(bits)


@pytest.mark.parametrize(
    "packed", [np.zeros((2, 3)), np.zeros(3, np.uint8), np.zeros((3, 0), np.uint8)]
)
def test_only_bytes_are_codes(packed: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> None:
    with pytest.raises(InputError, match="packed codes"):
        unpack(packed)
