"""Feature arrays from `.npy` (memory-mapped) and `.npz` files, checked at the door."""

import zipfile
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccal.array_files import open_npz
from ccal.errors import InputError


def load_array(path: str | PathLike[str], key: str | None = None) -> NDArray[Any]:
    """The array (rows, ...) of a `.npy` file, memory-mapped, or of a `.npz` file, in memory.

    `key` names the array of a `.npz` that holds several. Refused, with the file's name: what is
    not numbers, has fewer than two dimensions, or has no rows or no features.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/images.npy", np.ones((5, 3), dtype=np.float16))
    ...     load_array(f"{folder}/images.npy").shape
    (5, 3)
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such file.")
    if path.suffix not in (".npy", ".npz"):
        raise InputError(f"{path}: expected a .npy or .npz file, got {path.suffix or 'no suffix'}.")
    if path.suffix == ".npy" and key is not None:
        raise InputError(f"{path}: a .npy file holds one array, so it has no key {key!r}.")
    try:
        array = _from_npz(path, key) if path.suffix == ".npz" else _from_npy(path)
        _check(array, path)
    except InputError:
        raise
    except Exception as error:  # of many kinds: from zipfile, zlib, NumPy and the parser of headers
        raise InputError(f"{path}: not a readable {path.suffix} file ({error}).") from error
    return array


def find_bad_rows(
    array: NDArray[Any], *, chunk_bytes: int = 1 << 24
) -> tuple[NDArray[np.int64], int]:
    """Rows of `array` (n, ...) with NaN or infinite values: their indices, and the value count.

    The array is read `chunk_bytes` at a time, so a memory-map larger than memory is fine.

    >>> find_bad_rows(np.array([[1.0, 2.0], [np.nan, np.inf], [3.0, 4.0]]))
    (array([1]), 2)
    """
    bad: list[NDArray[np.int64]] = [np.empty(0, dtype=np.int64)]
    count = 0
    if array.dtype.kind == "f":
        for start, chunk in chunks(array, chunk_bytes):
            wrong = ~np.isfinite(chunk)
            if wrong.any():
                count += int(wrong.sum())
                bad.append(np.flatnonzero(wrong.any(axis=1)) + start)
    return np.concatenate(bad), count


def describe_bad_rows(array: NDArray[Any], path: Path) -> tuple[NDArray[np.int64], str]:
    """The rows that `find_bad_rows` finds, and a sentence about them, without a full stop.

    Finite values beyond the range of float32, the precision of all computation, are refused.

    >>> describe_bad_rows(np.array([[1.0], [-1e300]]), Path("photos.npy"))
    Traceback (most recent call last):
    ...
    ccal.errors.InputError: photos.npy: values beyond float32 (up to 3.4e+38), first in row 1 \
(counted from 0); rescale them.
    """
    limit = np.finfo(np.float32).max
    for start, chunk in chunks(array) if array.dtype == np.float64 else ():
        large = (np.abs(chunk) > limit) & np.isfinite(chunk)
        if large.any():
            row = start + int(np.flatnonzero(large.any(axis=1))[0])
            raise InputError(
                f"{path}: values beyond float32 (up to {limit:.2g}), first in row {row} (counted "
                "from 0); rescale them."
            )
    rows, count = find_bad_rows(array)
    listed = ", ".join(map(str, rows[:10])) + (", ..." if len(rows) > 10 else "")
    return rows, (
        f"{path}: {count:,} NaN or infinite values in {len(rows):,} of {len(array):,} rows "
        f"(counted from 0: {listed})"
    )


def chunks(array: NDArray[Any], chunk_bytes: int = 1 << 24) -> Iterator[tuple[int, NDArray[Any]]]:
    """Some rows at a time as (start, rows), each row flat."""
    step = rows_at_once(array, chunk_bytes)
    for start in range(0, len(array), step):
        chunk = array[start : start + step]
        yield start, chunk.reshape(len(chunk), -1)


def rows_at_once(array: NDArray[Any], chunk_bytes: int = 1 << 24) -> int:
    """The number of rows that fit into so many bytes, at least one."""
    return max(1, chunk_bytes * len(array) // max(1, array.nbytes))


def _from_npy(path: Path) -> NDArray[Any]:
    array: NDArray[Any] = np.lib.format.open_memmap(path, mode="r")
    return array


def _from_npz(path: Path, key: str | None) -> NDArray[Any]:
    if not zipfile.is_zipfile(path):
        raise InputError(f"{path}: not a readable .npz file (it is no zip archive).")
    with open_npz(path) as archive:
        if key is None and len(archive.files) != 1:
            raise InputError(
                f"{path}: holds {len(archive.files)} arrays, name one of {archive.files}."
            )
        if key is not None and key not in archive.files:
            raise InputError(f"{path}: no array {key!r}; there are {archive.files}.")
        array: NDArray[Any] = archive[archive.files[0] if key is None else key]
        return array


def _check(array: NDArray[Any], path: Path) -> None:
    dtype = array.dtype
    if dtype.kind not in "fiub" or dtype.itemsize > 8 or not dtype.isnative:
        raise InputError(
            f"{path}: values of type {dtype}; expected numbers of up to 64 bits in this machine's "
            "byte order, such as float32."
        )
    if array.ndim < 2 or array.size == 0:
        raise InputError(
            f"{path}: shape {array.shape}; expected (rows, features), at least one of each."
        )
