"""Rendered tunes on disk: three arrays that are memory-mapped, and a manifest that describes them.

A folder holds `manifest.json` and the files that it names: `sheet` (columns, 40), all staff lines
one behind the other; `audio` (frames, 136), all spectrograms; and `onsets`, a row each. The
manifest is written last and at once, so that a folder has a whole store or none.

Arrays in files that are memory-mapped, and the manifest that says what they must be like.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ccal.errors import InputError
from ccal.music.audio import BINS
from ccal.music.engraving import ROWS
from ccal.music.rendering import ONSET, RenderedTune

__all__ = [
    "ARRAYS",
    "FORMAT",
    "MANIFEST",
    "PARTS",
    "DamagedError",
    "SheetAudioStore",
    "StoredTune",
    "describe",
    "file_digest",
    "map_array",
    "read_manifest",
    "verify_files",
]


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


# PARTS is the folder of what is rendered, until the store is whole.
MANIFEST, PARTS, FORMAT = "manifest.json", "parts", 1
ARRAYS: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {
    "sheet": (np.dtype(np.uint8), (ROWS,)),
    "audio": (np.dtype(np.float16), (BINS,)),
    "onsets": (ONSET, ()),
}


@dataclass(frozen=True)
class StoredTune:
    """One tune and its parts of the arrays, each from the first to before the last row.

    `group` is that of its melody: tunes of one group are the same or nearly so. `abc` is what it
    was rendered from; stores of earlier versions do not have it.
    """

    name: str
    source: str
    key: str
    group: int
    sheet: tuple[int, int]
    audio: tuple[int, int]
    onsets: tuple[int, int]
    abc: str | None = None


class SheetAudioStore:
    """Staff lines, spectrograms and onsets of many tunes, read only where they are looked at.

    `tunes` are the tunes in order, `skipped` those that could not be rendered, as (title, reason).
    Raises `InputError` if the folder has no store, or a damaged one; `verify` reads every byte.
    """

    def __init__(self, folder: str | PathLike[str]) -> None:
        self.folder = Path(fspath(folder))
        self.manifest = self._manifest()
        self.settings: dict[str, Any] = self.manifest["settings"]
        self.skipped = [(str(title), str(reason)) for title, reason in self.manifest["skipped"]]
        self.tunes: list[StoredTune] = []
        ends = dict.fromkeys(ARRAYS, 0)
        for entry in self.manifest["tunes"]:
            parts = {name: (ends[name], ends[name] + int(entry[name])) for name in ARRAYS}
            ends = {name: end for name, (_, end) in parts.items()}
            about = {key: entry[key] for key in ("name", "source", "key", "group")}
            about |= parts | {"abc": entry.get("abc")}
            self.tunes.append(StoredTune(**about))
        self.sheet: NDArray[np.uint8] = self._array("sheet", ends["sheet"])
        self.audio: NDArray[np.float16] = self._array("audio", ends["audio"])
        self.onsets: NDArray[np.void] = self._array("onsets", ends["onsets"])

    @property
    def groups(self) -> list[int]:
        """The melody group of each tune, for `split_tunes_by_melody`."""
        return [tune.group for tune in self.tunes]

    def tune(self, number: int) -> RenderedTune:
        """One tune, as views of the arrays."""
        tune = self.tunes[number]
        return RenderedTune(
            self.sheet[slice(*tune.sheet)],
            self.audio[slice(*tune.audio)],
            self.onsets[slice(*tune.onsets)],
        )

    def verify(self) -> None:
        """Compare every file with its hash; `InputError` names the one that differs."""
        with self._named():
            verify_files(self.folder, self.manifest["files"])

    def __len__(self) -> int:
        return len(self.tunes)

    def __repr__(self) -> str:
        return f"SheetAudioStore({len(self)} tunes, {len(self.onsets):,} onsets)"

    def _manifest(self) -> dict[str, Any]:
        path = self.folder / MANIFEST
        if not path.is_file():
            raise InputError(
                f"{str(self.folder)!r} has no finished store; `ccal data build` (in Python, "
                "build_store) makes one, or goes on with one that was begun."
            )
        with self._named():
            return read_manifest(path, FORMAT, ("settings", "skipped", "tunes", "files", "hash"))

    def _array(self, name: str, rows: int) -> NDArray[Any]:
        """A file as an array, if it is what the manifest says."""
        dtype, rest = ARRAYS[name]
        with self._named():
            return map_array(self.folder, self.manifest["files"][name], dtype, (rows, *rest))

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Say whose files are damaged."""
        try:
            yield
        except DamagedError as error:
            raise InputError(
                f"the store {str(self.folder)!r} is damaged: {error}. "
                "Delete the folder and build it again."
            ) from error
