"""The items of a run's own pairs, and the index of them that lies in the run's folder.

`ccal serve RUN` and `ccal search RUN` make RUN/index when it is first needed, and again if the
model has changed since.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ccal.errors import InputError
from ccal.retrieval.backends import exists
from ccal.retrieval.index import Index
from ccal.retrieval.items import DamagedIndexError, OtherModelError
from ccal.retrieval.pair_items import PairItems

if TYPE_CHECKING:
    from ccal.data import Data, Source
    from ccal.model import DualEncoder
    from ccal.runs import Run

FOLDER = "index"
"""Name of the index in a run's folder."""
Note = Callable[[str], None]


def is_run(location: str | os.PathLike[str]) -> bool:
    """Whether a location is the folder of a run (or of a comparison), and no index.

    >>> is_run("milvus://localhost:19530/photos")
    False
    """
    return "://" not in os.fspath(location) and Path(location, "config.toml").is_file()


def run_items(run: Run, *, part: str = "all", modality: str | None = None) -> PairItems:
    """The items of a run's own pairs, of "train", "valid", "test" or "all"."""
    try:
        data = _read(run.source)
        run.check_unchanged(data.facts())
    except InputError as error:
        raise InputError(
            f"The pairs of {run.path} are not what they were: {error} Put the files back, or name "
            f"the pairs to index: ccal index {run.path} TABLE --x ... --y ... -o LOCATION"
        ) from error
    return _items(data, run.source, part, modality)


def source_items(source: Source, *, modality: str | None = None, note: Note) -> PairItems:
    """The items of any pairs; `note` is given remarks, such as rows that were left out."""
    data = _read(replace(source, valid=0, test=0))
    for text in data.notes:
        note(f"warning: {text}")
    return _items(data, source, "all", modality)


def existing_index(run: Run, model: DualEncoder) -> Index | None:
    """The index in a run's folder, if there is one that this model has made."""
    if not exists(run.path / FOLDER):
        return None
    try:
        return Index.open(run.path / FOLDER, model)
    except (OtherModelError, DamagedIndexError):
        # All that it holds can be made again.
        return None


def build_index(
    run: Run, model: DualEncoder, *, progress: Callable[[int, int], None] | None = None
) -> Index:
    """Index the items of a run's own pairs, in its folder, in one step."""
    options = {"model_folder": run.path, "replace": True, "progress": progress}
    return Index.build(run.path / FOLDER, model, run_items(run), **options)  # type: ignore[arg-type]


def _read(source: Source) -> Data:
    from ccal.data import read_source  # an index that exists is searched without it

    return read_source(source)


def _items(data: Data, source: Source, part: str, modality: str | None) -> PairItems:
    pairs = data.pairs if part == "all" else data.part(part)
    if not len(pairs):
        raise InputError(f"There are no {part} pairs to index.")
    arrays = {
        view.name: f"{source.path(view.file).absolute()}{f':{view.key}' if view.key else ''}"
        for view in source.views
        if view.file is not None
    }
    root = None
    if source.table is not None and source.layout is None:
        # Files are called as the table calls them.
        root = source.path(source.files) if source.files else source.path(source.table).parent
    return PairItems(pairs, modality=modality, root=root, arrays=arrays)
