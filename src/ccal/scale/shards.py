"""Datasets of shards, which workers read one by one."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ccal.errors import InputError
from ccal.features.scan import SUFFIXES as IMAGES
from ccal.files import parse_document
from ccal.scale.formats import ArrayShard, Batch, ParquetShard, shards_in
from ccal.scale.storage import files_of, is_remote, join, open_file

MANIFEST = "manifest.json"
"""The name of the list of shards in a folder that `ccal encode` has written."""

_SUFFIXES = (".parquet", ".npy", ".tar")


class Shard(Protocol):
    """A part of a dataset that one worker reads; `name` is its own, `rows` their number.

    A class of your own may make rows instead of reading them; it must be pickled.
    """

    @property
    def name(self) -> str:
        """What the shard is called in messages and names of files."""

    @property
    def rows(self) -> int:
        """Number of rows."""

    def columns(self) -> list[str]:
        """The names of all columns."""

    def batches(self, columns: Sequence[str], size: int) -> Iterator[Batch]:
        """All rows of some columns, in order, at most about `size` at a time."""


@dataclass(frozen=True)
class Dataset:
    """Shards in order; `manifest` is what a folder of embeddings says of itself.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> for number in range(2):
    ...     np.save(f"{folder.name}/x-{number}.npy", np.ones((3, 4)))
    ...     np.save(f"{folder.name}/y-{number}.npy", np.ones((3, 2)))
    >>> dataset = open_dataset(folder.name)
    >>> dataset.rows, dataset.columns, [shard.name for shard in dataset.shards]
    (6, ['x', 'y'], ['0', '1'])
    >>> folder.cleanup()
    """

    location: str
    shards: Sequence[Shard]
    manifest: Mapping[str, Any] | None = None

    @property
    def rows(self) -> int:
        """Rows of all shards."""
        return sum(shard.rows for shard in self.shards)

    @property
    def starts(self) -> list[int]:
        """The number of rows before each shard."""
        return [0, *accumulate(shard.rows for shard in self.shards)][:-1]

    @property
    def columns(self) -> list[str]:
        """The columns of the first shard."""
        return self.shards[0].columns()

    def check_columns(self, names: Sequence[str]) -> None:
        """Refuse a name that is no column."""
        if missing := [name for name in names if name not in self.columns]:
            raise InputError(
                f"{self.location}: no column {', '.join(map(repr, missing))}; "
                f"the columns are {', '.join(map(repr, self.columns))}."
            )

    def fingerprint(self) -> str:
        """A hash of the names and sizes of the shards: whether a repeated job is the same."""
        shards = [[shard.name, shard.rows] for shard in self.shards]
        return hashlib.sha256(json.dumps(shards).encode()).hexdigest()


def open_dataset(location: str | os.PathLike[str]) -> Dataset:
    """The shards of a folder, of a pattern such as `data/*.parquet`, or of one file.

    A location may be a URL such as `s3://bucket/data`. Files are in the order of their names. Of
    `.npy` files, `x-0001.npy` is the column `x` of the shard `0001`. A folder with the manifest of
    `ccal encode` has the shards that this lists.
    """
    place = os.fspath(location)
    files = files_of(place)
    if join(place, MANIFEST) in files:
        return _written(place, files)
    paths = [path for path in files if path.endswith(_SUFFIXES) and Path(path).name[0] != "."]
    kinds = sorted({Path(path).suffix for path in paths})
    if len(kinds) != 1:
        problem = f"it has {' and '.join(kinds)} files" if kinds else "there are none"
        raise InputError(f"{place}: expected .parquet, .npy or .tar files of one kind; {problem}.")
    return Dataset(place, shards_in(paths))


def is_dataset(location: str | os.PathLike[str]) -> bool:
    """Whether a place holds shards, and is no single file or folder of images.

    >>> is_dataset("photos/*.parquet"), is_dataset("photos.tar"), is_dataset("photos.npy")
    (True, True, False)
    """
    place = os.fspath(location)
    if is_remote(place):
        return True
    if not Path(place).is_dir():
        pattern = re.search(r"[*?\[]", place) and not Path(place).exists()
        return bool(pattern) or place.endswith(".tar")
    suffixes = {Path(path).suffix.lower() for path in files_of(place)}
    return not suffixes.isdisjoint(_SUFFIXES) and suffixes.isdisjoint(IMAGES)


def numbers_of(batch: Batch, name: str, shard: Shard) -> np.ndarray[Any, Any]:
    """A column as an array of numbers (n, d)."""
    values = batch[name]
    if not isinstance(values, np.ndarray):
        values = np.asarray(values) if values and isinstance(values[0], int | float) else None
    if values is None or values.dtype.kind not in "fiub":
        raise InputError(
            f"{shard.name}: the column {name!r} holds no numbers; expected a vector a row, such as "
            "the features of a network."
        )
    numbers: np.ndarray[Any, Any] = values.reshape(len(values), -1)
    return numbers


def _written(folder: str, files: Mapping[str, int]) -> Dataset:
    """A folder that lists its shards, and the files that it has."""
    try:
        with open_file(join(folder, MANIFEST)) as file:
            about = parse_document(file.read(), MANIFEST)
        entries = [(join(folder, s["file"]), int(s["rows"]), s["bytes"]) for s in about["shards"]]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{join(folder, MANIFEST)} cannot be read ({error}).") from error
    for path, _, size in entries:
        if files.get(path) != size:
            raise InputError(
                f"{path} is missing or has changed since {MANIFEST} was written; encode it again."
            )
    shards: list[Shard] = [
        ParquetShard(path, rows)
        if path.endswith(".parquet")
        else ArrayShard(Path(path).stem, {"embedding": path}, rows)
        for path, rows, _ in entries
    ]
    return Dataset(folder, shards, about)
