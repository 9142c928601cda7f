from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from ccal.data.published import read_t7
from ccal.errors import InputError
from tests.data.published.torch7_files import (
    ints,
    longs,
    number,
    storage,
    string,
    table,
    tensor,
    torch_object,
    write_t7,
)

SMALL = np.arange(6, dtype=np.float32).reshape(2, 3)
# The bytes of a 1 x 2 FloatTensor as torch7 writes it, for once without the helper.
BYTES = bytes.fromhex(
    "04000000 01000000 03000000 562031 11000000"
    + b"torch.FloatTensor".hex()
    + "02000000 0100000000000000 0200000000000000 0200000000000000 0100000000000000"
    + "0100000000000000 04000000 02000000 03000000 562031 12000000"
    + b"torch.FloatStorage".hex()
    + "0200000000000000 0000803f 000000c0"
)


def test_bytes_of_a_tensor(tmp_path: Path) -> None:
    found = read_t7(write_t7(tmp_path / "a.t7", BYTES))
    assert found.tolist() == [[1, -2]]
    assert tensor(np.array([[1, -2]], dtype=np.float32)) == BYTES


@given(
    st.sampled_from(["u1", "i1", "i2", "i4", "i8", "f4", "f8"]).flatmap(
        lambda kind: arrays.arrays(kind, arrays.array_shapes(max_dims=4, max_side=5))
    ),
    st.booleans(),
)
def test_any_tensor(
    tmp_path_factory: pytest.TempPathFactory, array: NDArray[Any], version: bool
) -> None:
    path = write_t7(tmp_path_factory.mktemp("t7") / "a.t7", tensor(array, version=version))
    found = read_t7(path)
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


def test_a_part_of_a_storage_and_another_order(tmp_path: Path) -> None:
    content = tensor(SMALL, sizes=[2, 2], strides=[1, 3], offset=2)
    assert read_t7(write_t7(tmp_path / "a.t7", content)).tolist() == [[1, 4], [2, 5]]
    one = tensor(SMALL, sizes=[1, 3], strides=[2**62, 1], offset=4)
    assert read_t7(write_t7(tmp_path / "b.t7", one)).tolist() == [[3, 4, 5]]


def test_a_table_with_one_tensor(tmp_path: Path) -> None:
    again = ints(4, 2)  # the tensor that was read before, by its number
    other = table(4, (number(1), again), (number(2), ints(5, 1)), (number(3), ints(0)))
    content = table(1, (string("name"), string("Auk")), (string("x"), tensor(SMALL, number=2)))
    both = table(1, (string("x"), tensor(SMALL, number=2)), (string("y"), other))
    for name, whole in (("a", content), ("b", both)):
        np.testing.assert_array_equal(read_t7(write_t7(tmp_path / name, whole)), SMALL)
    # Two tensors may share a storage, but only one can be meant.
    shared = tensor(SMALL, number=4, sizes=[6], held=ints(4, 3))
    two = table(1, (string("x"), tensor(SMALL, number=2)), (string("y"), shared))
    with pytest.raises(InputError, match="expected one tensor, found 2"):
        read_t7(write_t7(tmp_path / "c", two))


BAD = {
    "empty": (b"", "0 are left"),
    "ASCII": (b"4\n1\n3\nV 1\n17\ntorch.FloatTensor\n", "ASCII format; expected its binary"),
    "a picture": (b"\xff\xd8\xff\xe0" + bytes(40), "a value of type"),
    "a function": (ints(8, 1, 4), "a value of type 8 at byte 0"),
    "no tensor": (string("features"), "expected one tensor, found 0"),
    "a model": (torch_object(1, "nn.Sequential", b""), "an object 'nn.Sequential'"),
    "CUDA": (torch_object(1, "torch.CudaTensor", ints(0)), "an object 'torch.CudaTensor'"),
    "dimensions": (torch_object(1, "torch.FloatTensor", ints(99)), "a tensor of 99 dimensions"),
    "no dimensions": (tensor(SMALL, sizes=[]), "a tensor of sizes []"),
    "no rows": (tensor(SMALL, sizes=[0, 2**60]), "a tensor of sizes [0, "),
    "negative": (tensor(SMALL, sizes=[2, -3], strides=[3, 1]), "a tensor of sizes [2, -3]"),
    "offset": (tensor(SMALL, offset=0), "offset 0"),
    "past the end": (tensor(SMALL, offset=2), "sizes [2, 3] in a storage of 6 numbers"),
    "repeated": (tensor(SMALL, sizes=[10**6], strides=[0]), "sizes [1000000] in a storage"),
    "no storage": (tensor(SMALL, held=ints(0)), "without a storage"),
    "other storage": (tensor(SMALL, held=storage(SMALL.astype(float))), "without a storage"),
    "itself": (tensor(SMALL, held=ints(4, 1)), "without a storage"),
    "a long string": (ints(2, 2**31 - 1), "2,147,483,647 bytes announced"),
    "a negative string": (ints(2, -1), "-1 bytes announced"),
    "a long table": (ints(3, 1, 2**30), "bytes announced"),
    "a long storage": (torch_object(1, "torch.ByteStorage", longs(2**62)), "bytes announced"),
    "nested": (b"".join(ints(3, i, 1) for i in range(99)), "nested more than"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files(tmp_path: Path, case: str) -> None:
    content, message = BAD[case]
    path = write_t7(tmp_path / "a.t7", content)
    with pytest.raises(InputError) as error:
        read_t7(path)
    assert message in str(error.value)
    assert str(error.value).startswith(f"{path}: ")


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_t7(tmp_path / "a.t7")


@given(st.data())
def test_damaged_files_are_refused_or_read(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    whole = table(1, (string("x"), tensor(SMALL, number=2)), (number(2), ints(5, 1)))
    content = bytearray(whole[: data.draw(st.integers(0, len(whole)))])
    places = st.integers(0, max(0, len(content) - 1))
    for place, byte in data.draw(st.lists(st.tuples(places, st.integers(0, 255)), max_size=4)):
        content[place : place + 1] = bytes([byte])
    path = write_t7(tmp_path_factory.mktemp("t7") / "a.t7", bytes(content))
    with suppress(InputError):
        assert read_t7(path).size <= 6
