"""The model of an index: found where the index remembers it, or replaced by a newer one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccal.errors import InputError
from ccal.retrieval.backends import create_backend
from ccal.retrieval.index import Index
from ccal.runs import load_model

if TYPE_CHECKING:
    from ccal.model import DualEncoder
    from ccal.retrieval.items import Item

_AT_ONCE = 4096


def bound_model(index: Index, folder: Path | None = None) -> DualEncoder:
    """Load the model of an index and bind it: from `folder`, or from where the index remembers it.

    A model that did not make the index is refused.
    """
    stored = index.binding.model_folder
    if folder is None and stored is None:
        raise InputError(
            f"{index.stats().location} does not know where its model is; say it with --model RUN."
        )
    if folder is None and not Path(str(stored)).is_dir():
        raise InputError(f"The model was in {stored}, which is gone; say where with --model RUN.")
    model = load_model(folder or Path(str(stored)))
    index.bind(model)
    return model


def rebuild_from_files(
    location: str | os.PathLike[str],
    model: DualEncoder,
    *,
    model_folder: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Index:
    """Embed all items of an index by another model, from the files and texts that it knows.

    Returns the index, open. If a file is gone, nothing is changed.
    """
    with Index.open(location) as old:
        lost = [item for item in old.get(old.ids()) if not _is_there(item)]
    if lost:
        first = lost[0]
        why = f"came from {first.file}, which is not there" if first.file else "has no file or text"
        raise InputError(
            f"{location}: {len(lost):,} items cannot be read again; {first.id!r} {why}. Nothing "
            "was changed. Go to the folder that files are named from, or give an INPUT to put in "
            "its place."
        )
    read = _reader()
    return Index.rebuild(location, model, read, model_folder=model_folder, progress=progress)


def copy_index(index: Index, location: str | os.PathLike[str], *, replace: bool = False) -> Index:
    """The same items and vectors in another place, as from a folder into a database.

    The copy belongs to the same model, and is returned open, without it.
    """

    def batches() -> Iterator[tuple[list[Item], Any]]:
        for modality in index.binding.modalities:
            ids = index.ids(modality)
            for start in range(0, len(ids), _AT_ONCE):
                some = ids[start : start + _AT_ONCE]
                yield index.get(some), index.vectors(some)

    create_backend(location, index.binding, batches(), replace=replace).close()
    return Index.open(location)


def _is_there(item: Item) -> bool:
    from ccal.data.items import can_read_again

    if item.file is None:
        return isinstance(item.metadata.get("text"), str)
    return can_read_again(item.file)


def _reader() -> Callable[[Sequence[Item]], Any]:
    """A function that gives the raw items of one modality; it opens each array once."""
    from ccal.data.arrays import load_array
    from ccal.data.items import read_again

    load = cache(load_array)

    def read(items: Sequence[Item]) -> Any:
        files = [item.file for item in items if item.file is not None]
        found = read_again(files, load)
        if len(files) == len(items):
            return found
        if files and not isinstance(found, list):
            raise InputError(
                f"Some items, such as {files[0]}, are rows of arrays, and others are texts; one "
                "model cannot take both."
            )
        return [item.metadata["text"] if item.file is None else item.file for item in items]

    return read
