"""`ccal index --rebuild`: the items of an index, read again from where they came."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccal.cli.console import progress_line
from ccal.errors import InputError

if TYPE_CHECKING:
    from ccal.model import DualEncoder
    from ccal.retrieval import Index, Item

__all__ = ["names_of_rows", "rebuild_from_files"]

_ROW = re.compile(r"(?P<file>.+\.np[yz])(:(?P<key>.+))?#(?P<row>\d+)", re.DOTALL)


def names_of_rows(source: Path, key: str | None, count: int) -> list[str]:
    """Where each row of an array comes from.

    >>> names_of_rows(Path("photos.npz"), "train", 2)
    ['photos.npz:train#0', 'photos.npz:train#1']
    """
    name = f"{source}:{key}" if key else str(source)
    return [f"{name}#{row}" for row in range(count)]


def rebuild_from_files(location: str, model: DualEncoder, run: Path) -> Index:
    """Embed all items of an index by another model; the index, open."""
    from ccal.retrieval import Index

    with Index.open(location) as old:
        _refuse_lost(location, [item for item in old.get(old.ids()) if not _is_there(item)])
    progress = progress_line("embedding")
    return Index.rebuild(location, model, _read, model_folder=run, progress=progress)


def _refuse_lost(location: str, lost: Sequence[Item]) -> None:
    if not lost:
        return
    first = lost[0]
    why = f"came from {first.file}, which is not there" if first.file else "has no file or text"
    raise InputError(
        f"{location}: {len(lost):,} items cannot be read again; {first.id!r} {why}. Nothing was "
        "changed. Go to the folder that files are named from, or give an INPUT to put in its place."
    )


def _is_there(item: Item) -> bool:
    """Whether an item can be read again."""
    if item.file is None:
        return isinstance(item.metadata.get("text"), str)
    row = _ROW.fullmatch(item.file)
    return Path(row["file"] if row else item.file).is_file()


def _read(items: Sequence[Item]) -> Any:
    """What items of one modality are: rows of arrays, names of files, or texts."""
    import numpy as np

    places = [_ROW.fullmatch(item.file or "") for item in items]
    rows = [_row(place["file"], place["key"], int(place["row"])) for place in places if place]
    if not rows:
        return [item.metadata["text"] if item.file is None else item.file for item in items]
    if len(rows) < len(items):
        raise InputError(
            f"{items[0].id!r} and others are partly rows of arrays, partly not; which model could "
            "take both?"
        )
    return np.stack(rows)


def _row(file: str, key: str | None, row: int) -> Any:
    array = _array(file, key)
    if row >= len(array):
        raise InputError(f"{file} has {len(array):,} rows; row {row} was indexed from it.")
    return array[row]


@cache
def _array(file: str, key: str | None) -> Any:
    from ccal.data import load_array

    return load_array(Path(file), key)
