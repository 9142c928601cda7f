"""Rendered tunes on disk: three arrays that are memory-mapped, and a manifest that describes them.

A folder holds `manifest.json` and the files that it names: `sheet` (columns, 40), all staff lines
one behind the other; `audio` (frames, 136), all spectrograms; and `onsets`, a row each. The
manifest is written last and at once, so that a folder has a whole store or none.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccal.data.music.engraving import ROWS
from ccal.data.music.rendering import ONSET, RenderedTune
from ccal.data.music.spectrogram import BINS
from ccal.errors import InputError

__all__ = ["ARRAYS", "FORMAT", "MANIFEST", "SheetAudioStore", "StoredTune", "file_digest"]

MANIFEST, FORMAT = "manifest.json", 1
ARRAYS: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {
    "sheet": (np.dtype(np.uint8), (ROWS,)),
    "audio": (np.dtype(np.float16), (BINS,)),
    "onsets": (ONSET, ()),
}


@dataclass(frozen=True)
class StoredTune:
    """One tune and its parts of the arrays, each from the first to before the last row.

    `group` is that of its melody: tunes of one group are the same or nearly so.
    """

    name: str
    source: str
    key: str
    group: int
    sheet: tuple[int, int]
    audio: tuple[int, int]
    onsets: tuple[int, int]


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
            about |= parts
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
        for name, entry in self.manifest["files"].items():
            if file_digest(self.folder / entry["name"]) != entry["sha256"]:
                raise self._damaged(f"the content of {entry['name']} ({name}) has changed")

    def __len__(self) -> int:
        return len(self.tunes)

    def __repr__(self) -> str:
        return f"SheetAudioStore({len(self)} tunes, {len(self.onsets):,} onsets)"

    def _manifest(self) -> dict[str, Any]:
        path = self.folder / MANIFEST
        if not path.is_file():
            raise InputError(
                f"{str(self.folder)!r} has no finished store; build_store makes one, or goes on "
                "with one that was begun."
            )
        try:
            manifest: dict[str, Any] = json.loads(path.read_bytes())
            if manifest["format"] != FORMAT:
                raise InputError(
                    f"{str(path)!r} has the format {manifest['format']}, and this version of ccal "
                    f"reads {FORMAT}; build the store again in a new folder."
                )
            for key in ("settings", "skipped", "tunes", "files", "hash"):
                manifest[key]
        except (ValueError, KeyError, TypeError) as error:
            if isinstance(error, InputError):
                raise
            raise self._damaged(f"{MANIFEST} cannot be read ({error})") from error
        return manifest

    def _array(self, name: str, rows: int) -> NDArray[Any]:
        """A file as an array, if it is what the manifest says."""
        dtype, rest = ARRAYS[name]
        entry = self.manifest["files"][name]
        path = self.folder / entry["name"]
        if not path.is_file():
            raise self._damaged(f"{entry['name']} is missing")
        if path.stat().st_size != entry["bytes"]:
            raise self._damaged(
                f"{entry['name']} has {path.stat().st_size:,} bytes, not {entry['bytes']:,}"
            )
        try:
            array = np.load(path, mmap_mode="r")
        except (ValueError, OSError) as error:
            raise self._damaged(f"{entry['name']} cannot be read ({error})") from error
        if array.dtype != dtype or array.shape != (rows, *rest):
            raise self._damaged(f"{entry['name']} has the shape {array.shape} of {array.dtype}")
        # A plain array over the same map: every slice of np.memmap costs microseconds more.
        return np.asarray(array)

    def _damaged(self, what: str) -> InputError:
        return InputError(
            f"the store {str(self.folder)!r} is damaged: {what}. "
            "Delete the folder and build it again."
        )


def file_digest(path: Path) -> str:
    """SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
