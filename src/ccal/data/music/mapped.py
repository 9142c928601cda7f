"""Arrays in files that are memory-mapped, and the manifest that says what they must be like."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ccal.errors import InputError

__all__ = ["DamagedError", "describe", "file_digest", "map_array", "read_manifest", "verify_files"]


class DamagedError(Exception):
    """What is wrong with a file, for an error that says of what it is a part."""


def read_manifest(path: Path, form: int, keys: Sequence[str]) -> dict[str, Any]:
    """A manifest in JSON of the format `form`, which has these keys."""
    try:
        manifest: dict[str, Any] = json.loads(path.read_bytes())
        if manifest["format"] != form:
            raise InputError(
                f"{str(path)!r} has the format {manifest['format']}, and this version of ccal "
                f"reads {form}; build it again in a new folder."
            )
        for key in keys:
            manifest[key]
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, InputError):
            raise
        raise DamagedError(f"{path.name} cannot be read ({error})") from error
    return manifest


def describe(path: Path) -> dict[str, Any]:
    """Name, size and hash of a file, for a manifest."""
    return {"name": path.name, "bytes": path.stat().st_size, "sha256": file_digest(path)}


def map_array(
    folder: Path, entry: Mapping[str, Any], dtype: DTypeLike, shape: tuple[int, ...]
) -> NDArray[Any]:
    """The array of a file, if it is what `describe` said of it; its content is not read."""
    path = folder / entry["name"]
    if not path.is_file():
        raise DamagedError(f"{path.name} is missing")
    if path.stat().st_size != entry["bytes"]:
        raise DamagedError(f"{path.name} has {path.stat().st_size:,} bytes, not {entry['bytes']:,}")
    try:
        array = np.load(path, mmap_mode="r")
    except (ValueError, OSError) as error:
        raise DamagedError(f"{path.name} cannot be read ({error})") from error
    if array.dtype != dtype or array.shape != shape:
        raise DamagedError(f"{path.name} has the shape {array.shape} of {array.dtype}")
    # A plain array over the same map: every slice of np.memmap costs microseconds more.
    return np.asarray(array)


def verify_files(folder: Path, entries: Mapping[str, Mapping[str, Any]]) -> None:
    """Compare every file with its hash."""
    for name, entry in entries.items():
        if file_digest(folder / entry["name"]) != entry["sha256"]:
            raise DamagedError(f"the content of {entry['name']} ({name}) has changed")


def file_digest(path: Path) -> str:
    """SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
