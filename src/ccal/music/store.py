"""Rendered tunes on disk: three memory-mapped arrays, and a manifest that describes them.

A folder holds `manifest.json` and the files that it names: `sheet` (columns, 40), all staff lines
one behind the other; `audio` (frames, 136), all spectrograms; and `onsets`, one row each.
"""

from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccal.array_files import ArrayFolder
from ccal.errors import InputError
from ccal.music.audio import BINS
from ccal.music.engraving import ROWS
from ccal.music.rendering import ONSET, RenderedTune

MANIFEST, _FORMAT = "manifest.json", 1
ARRAYS: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {
    "sheet": (np.dtype(np.uint8), (ROWS,)),
    "audio": (np.dtype(np.float16), (BINS,)),
    "onsets": (ONSET, ()),
}
"""The type of each array, and its shape without the rows."""


@dataclass(frozen=True)
class StoredTune:
    """One tune, and its rows of the three arrays, each as (first, one behind the last).

    Tunes of one `group` have the same melody, or nearly so. `abc` is the text that the tune was
    rendered from; stores of earlier versions have None.
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
    """Staff lines, spectrograms and onsets of many tunes; only the parts in use are read.

    `tunes` are the tunes in order, `skipped` those that could not be rendered, as (title, reason).
    Raises `InputError` if the folder has no store, or a damaged one: opening reads every byte and
    compares it with its hash.
    """

    def __init__(self, folder: str | PathLike[str]) -> None:
        self.folder = Path(fspath(folder))
        if not (self.folder / MANIFEST).is_file():
            raise InputError(
                f"{str(self.folder)!r} has no finished store; `ccal data build` (in Python, "
                "build_store) makes one, or completes an interrupted one."
            )
        self._files = store_files(self.folder)
        self.manifest = self._files.read(("settings", "skipped", "tunes", "files", "hash"))
        self.settings: dict[str, Any] = self.manifest["settings"]
        self.skipped = [(str(title), str(reason)) for title, reason in self.manifest["skipped"]]
        self.tunes: list[StoredTune] = []
        ends = dict.fromkeys(ARRAYS, 0)
        for entry in self.manifest["tunes"]:
            rows = {name: (ends[name], ends[name] + int(entry[name])) for name in ARRAYS}
            ends = {name: end for name, (_, end) in rows.items()}
            about: dict[str, Any] = {k: entry[k] for k in ("name", "source", "key", "group")}
            self.tunes.append(StoredTune(**(about | rows), abc=entry.get("abc")))
        self.sheet: NDArray[np.uint8] = self._array("sheet", ends)
        self.audio: NDArray[np.float16] = self._array("audio", ends)
        self.onsets: NDArray[np.void] = self._array("onsets", ends)

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

    def __len__(self) -> int:
        return len(self.tunes)

    def __repr__(self) -> str:
        return f"SheetAudioStore({len(self)} tunes, {len(self.onsets):,} onsets)"

    def _array(self, name: str, rows: dict[str, int]) -> NDArray[Any]:
        dtype, shape = ARRAYS[name]
        return self._files.array(self.manifest, name, dtype, (rows[name], *shape))


def store_files(folder: Path) -> ArrayFolder:
    """The files of a store, to read or to write."""
    return ArrayFolder(folder, MANIFEST, _FORMAT, kind="store")
