"""The arrays of a library on disk: memory-mapped, and a manifest, written last, that has hashes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccal.errors import InputError
from ccal.files import alone_in, write_atomically
from ccal.music.embedding import PLACE
from ccal.music.store import (
    DamagedError,
    describe,
    file_digest,
    map_array,
    read_manifest,
    verify_files,
)
from ccal.retrieval.items import DamagedIndexError

__all__ = ["read_about", "read_array", "verify", "write_array", "write_manifest", "writing"]

MANIFEST, FORMAT = "library.json", 1
_KEYS = ("model", "store", "store_folder", "level", "dim", "places", "files")


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Make the folder if there is none, and keep other writers out."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"a library is a folder, and {str(folder)!r} is a file.")
    with alone_in(folder):
        yield


def write_array(
    folder: Path, name: str, shape: tuple[int, ...], parts: Iterable[NDArray[Any]]
) -> dict[str, Any]:
    """Write rows, part by part, and describe the file; what is not finished is taken away."""
    path = folder / f".{name}.npy"
    try:
        array = np.lib.format.open_memmap(path, mode="w+", dtype=_dtype(name), shape=shape)
        row = 0
        for part in parts:
            array[row : row + len(part)] = part
            row += len(part)
        array.flush()
        final = folder / f"{name}-{file_digest(path)[:12]}.npy"
        path.replace(final)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return describe(final)


def write_manifest(folder: Path, about: dict[str, Any]) -> None:
    """Make the library whole, and remove what no longer belongs to it."""
    text = json.dumps({"format": FORMAT, **about}, indent=1)
    write_atomically(folder / MANIFEST, text.encode())
    names = {entry["name"] for entry in about["files"].values()}
    for path in folder.glob("*.npy"):
        if path.name not in names:
            with suppress(OSError):
                path.unlink()


def read_about(folder: Path) -> dict[str, Any]:
    """What the manifest says, if it is one."""
    path = folder / MANIFEST
    if not path.is_file():
        raise InputError(f"{str(folder)!r} holds no finished library; TuneLibrary.build makes one.")
    with _named(folder):
        return read_manifest(path, FORMAT, _KEYS)


def read_array(folder: Path, about: dict[str, Any], name: str) -> NDArray[Any]:
    """A memory-mapped array, if its file is as the manifest says; its content is not read."""
    rest = () if name == "places" else (int(about["dim"]),)
    with _named(folder):
        return map_array(folder, about["files"][name], _dtype(name), (about["places"], *rest))


def verify(folder: Path, about: dict[str, Any]) -> None:
    """Read every byte, and compare it with the hashes of the manifest."""
    with _named(folder):
        verify_files(folder, about["files"])


def _dtype(name: str) -> np.dtype[Any]:
    return PLACE if name == "places" else np.dtype(np.float32)


@contextmanager
def _named(folder: Path) -> Iterator[None]:
    """Say whose files are damaged."""
    try:
        yield
    except DamagedError as error:
        raise DamagedIndexError(
            f"the library {str(folder)!r} is damaged: {error}. "
            "Delete the folder and build it again."
        ) from error
