from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ccal.data import Source, find_bad_rows, load_array, read_source
from ccal.errors import InputError


def test_npy_is_memory_mapped_read_only(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(6.0).reshape(3, 2))
    array = load_array(tmp_path / "x.npy")
    assert isinstance(array, np.memmap)
    assert not array.flags.writeable
    assert array.tolist() == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_with_one_array_or_a_named_one(tmp_path: Path, save: object) -> None:
    path = tmp_path / "x.npz"
    save(path, image=np.ones((3, 2)), text=np.zeros((3, 4)))  # type: ignore[operator]
    assert load_array(path, "text").shape == (3, 4)
    with pytest.raises(InputError, match=r"x\.npz: holds 2 arrays, name one of \['image', 'text'"):
        load_array(path)
    with pytest.raises(InputError, match=r"no array 'audio'; there are \['image', 'text'\]"):
        load_array(path, "audio")
    save(path, np.ones((3, 2)))  # type: ignore[operator]
    assert load_array(path).shape == (3, 2)


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    good = tmp_path / "good.npy"
    np.save(good, np.ones((100, 8)))
    contents = {
        "cut.npy": good.read_bytes()[:-100],
        "header.npy": good.read_bytes()[:20],
        "empty.npy": b"",
        "text.npy": b"1,2,3\n",
        "empty.npz": b"",
        "text.npz": b"1,2,3\n",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=rf"{name}: not a readable \.np"):
            load_array(tmp_path / name)
    np.savez(tmp_path / "damaged.npz", np.ones((100, 8)))
    data = bytearray((tmp_path / "damaged.npz").read_bytes())
    data[1000] ^= 255
    (tmp_path / "damaged.npz").write_bytes(data)
    with pytest.raises(InputError, match=r"damaged\.npz: not a readable \.npz file"):
        load_array(tmp_path / "damaged.npz")


def test_wrong_paths_and_kinds(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.npy: no such file"):
        load_array(tmp_path / "nowhere.npy")
    (tmp_path / "x.txt").write_text("1")
    with pytest.raises(InputError, match=r"expected a \.npy or \.npz file, got \.txt"):
        load_array(tmp_path / "x.txt")
    np.save(tmp_path / "x.npy", np.ones((2, 2)))
    with pytest.raises(InputError, match="has no key 'a'"):
        load_array(tmp_path / "x.npy", "a")


@pytest.mark.parametrize(
    "array",
    [
        np.array([["a", "b"]]),
        np.array([[1, None]], dtype=object),
        np.ones((2, 2), dtype=complex),
        np.ones((2, 2), dtype=">f4"),
    ],
    ids=["text", "object", "complex", "big-endian"],
)
def test_what_is_not_plain_numbers_is_refused(tmp_path: Path, array: NDArray[Any]) -> None:
    np.save(tmp_path / "x.npy", array, allow_pickle=True)
    with pytest.raises(InputError, match=r"x\.npy: (values of type|not a readable)"):
        load_array(tmp_path / "x.npy")


@pytest.mark.parametrize("shape", [(5,), (0, 3), (3, 0), ()])
def test_shapes_without_rows_and_features_are_refused(
    tmp_path: Path, shape: tuple[int, ...]
) -> None:
    np.save(tmp_path / "x.npy", np.ones(shape))
    with pytest.raises(InputError, match=r"x\.npy: (shape|not a readable)"):
        load_array(tmp_path / "x.npy")


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("chunk_bytes", [1, 100, 1 << 24])
def test_bad_values_are_counted_with_their_rows(
    dtype: type[np.floating[Any]], chunk_bytes: int
) -> None:
    array: NDArray[Any] = np.zeros((50, 2, 3), dtype=dtype)
    array[7, 0, 1] = array[7, 1, 2] = np.nan
    array[49, 1, 0] = -np.inf
    rows, count = find_bad_rows(array, chunk_bytes=chunk_bytes)
    assert rows.tolist() == [7, 49]
    assert count == 3


def test_whole_numbers_cannot_be_bad() -> None:
    assert find_bad_rows(np.ones((3, 2), dtype=np.int32))[1] == 0


def test_pairs_of_files(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.eye(4, 3, dtype=np.float16))
    np.savez(tmp_path / "y.npz", a=np.arange(8.0).reshape(4, 2), b=np.ones((5, 2)))
    x, y = f"image={tmp_path}/x.npy", f"text={tmp_path}/y.npz"
    pairs = read_source(Source(x=x, y=f"{y}:a")).pairs
    assert pairs.names == ("image", "text")
    assert isinstance(pairs.column("image").source, np.memmap)
    with pytest.raises(InputError, match=r"x\.npy has 4 rows and .*y\.npz has 5"):
        read_source(Source(x=x, y=f"{y}:b"))


def test_pairs_with_bad_values_are_refused_with_row_numbers(tmp_path: Path) -> None:
    x = np.ones((30, 3), dtype=np.float32)
    np.save(tmp_path / "x.npy", x)
    x[10:22, 1] = np.nan
    np.save(tmp_path / "y.npy", x)
    expected = (
        r"y\.npy: 12 NaN or infinite values in 12 of 30 rows \(counted from 0: 10, .*19, \.\.\.\)"
    )
    with pytest.raises(InputError, match=expected):
        read_source(Source(x=f"{tmp_path}/x.npy", y=f"{tmp_path}/y.npy"))
