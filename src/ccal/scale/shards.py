"""Datasets of shards: Parquet files, `.npy` arrays or WebDataset archives, read batch by batch."""

from __future__ import annotations

import glob
import hashlib
import io
import json
import os
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ccal.data.arrays import load_array
from ccal.errors import InputError
from ccal.features.scan import SUFFIXES as IMAGES
from ccal.files import read_document
from ccal.optional import require

MANIFEST = "manifest.json"
"""The name of the list of shards in a folder that `ccal encode` has written."""
KEY = "__key__"
"""The column with the name of each sample of a WebDataset archive."""
Batch = Mapping[str, Any]
"""By column, n values: an array (n, ...), or a list of texts, images as bytes, or JSON."""

_ARRAY = re.compile(r"(?P<column>\w+?)-(?P<number>\d[\w-]*)\.npy")
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


@dataclass(frozen=True)
class ParquetShard:
    """A Parquet file; lists of numbers of equal length are the rows of an array."""

    path: Path
    rows: int

    @property
    def name(self) -> str:
        """The name of the file without its suffix."""
        return self.path.stem

    def columns(self) -> list[str]:
        """The names of all columns."""
        return list(_parquet().read_schema(self.path).names)

    def batches(self, columns: Sequence[str], size: int) -> Iterator[Batch]:
        """All rows of some columns."""
        with _parquet().ParquetFile(self.path) as file:
            for batch in file.iter_batches(batch_size=size, columns=list(columns)):
                yield {name: self._values(batch.column(name), name) for name in columns}

    def _values(self, column: Any, name: str) -> Any:
        arrow = require("pyarrow", package="pyarrow", purpose="Reading Parquet")
        kind = column.type
        if isinstance(kind, arrow.FixedShapeTensorType):
            return column.to_numpy_ndarray()
        of = arrow.types
        lists = of.is_list(kind) or of.is_large_list(kind) or of.is_fixed_size_list(kind)
        if not (lists and of.is_primitive(kind.value_type)):
            return column.to_pylist()
        flat = column.flatten().to_numpy(zero_copy_only=False)
        width, rest = divmod(len(flat), max(1, len(column)))
        lengths = () if hasattr(kind, "list_size") else column.value_lengths().unique().to_pylist()
        if column.null_count or rest or (lengths and lengths != [width]):
            raise InputError(
                f"{self.path}: the lists in {name!r} differ in length, or some are missing; "
                "every row needs as many numbers."
            )
        return flat.reshape(len(column), width)


@dataclass(frozen=True)
class ArrayShard:
    """One `.npy` file for each column, with as many rows."""

    name: str
    paths: Mapping[str, Path]
    rows: int

    def columns(self) -> list[str]:
        """The names of all columns."""
        return list(self.paths)

    def batches(self, columns: Sequence[str], size: int) -> Iterator[Batch]:
        """All rows of some columns; the arrays are mapped into memory."""
        arrays = {name: load_array(self.paths[name]) for name in columns}
        for start in range(0, self.rows, size):
            yield {name: array[start : start + size] for name, array in arrays.items()}


@dataclass(frozen=True)
class TarShard:
    """A WebDataset archive: files of equal names but for the suffix are one sample."""

    path: Path
    rows: int

    @property
    def name(self) -> str:
        """The name of the file without its suffix."""
        return self.path.stem

    def columns(self) -> list[str]:
        """The name of each sample, and the suffixes of the first one."""
        with tarfile.open(self.path) as archive:
            return [KEY, *next((parts for _, parts in _samples(archive)), ())]

    def batches(self, columns: Sequence[str], size: int) -> Iterator[Batch]:
        """All rows of some columns."""
        rows: list[list[Any]] = []
        with tarfile.open(self.path) as archive:
            for key, parts in _samples(archive):
                rows.append([self._value(archive, key, parts, name) for name in columns])
                if len(rows) == size:
                    yield self._batch(columns, rows)
                    rows = []
        if rows:
            yield self._batch(columns, rows)

    def _value(
        self, archive: tarfile.TarFile, key: str, parts: Mapping[str, tarfile.TarInfo], name: str
    ) -> Any:
        """One cell: numbers, text or JSON by its suffix, all else, as images, as bytes."""
        if name == KEY:
            return key
        if name not in parts:
            raise InputError(f"{self.path}: {key} has no .{name}; it has {', '.join(parts)}.")
        file = archive.extractfile(parts[name])
        content = b"" if file is None else file.read()
        suffix = name.rpartition(".")[2]
        try:
            if suffix == "npy":
                return np.load(io.BytesIO(content), allow_pickle=False)
            if suffix in ("txt", "text", "caption"):
                return content.decode()
            return json.loads(content) if suffix in ("json", "cls") else content
        except ValueError as error:
            raise InputError(f"{self.path}: {key}.{name} cannot be read ({error}).") from error

    def _batch(self, columns: Sequence[str], rows: list[list[Any]]) -> Batch:
        batch: dict[str, Any] = {}
        for name, cells in zip(columns, map(list, zip(*rows, strict=True)), strict=True):
            if isinstance(cells[0], np.ndarray):
                if len({cell.shape for cell in cells}) > 1:
                    raise InputError(f"{self.path}: the arrays .{name} differ in shape.")
                cells = np.stack(cells)  # type: ignore[assignment]
            batch[name] = cells
        return batch


def open_dataset(location: str | os.PathLike[str]) -> Dataset:
    """The shards of a folder, of a pattern such as `data/*.parquet`, or of one file.

    Files are in the order of their names. Of `.npy` files, `x-0001.npy` is the column `x` of the
    shard `0001`. A folder with the manifest of `ccal encode` has the shards that this lists.
    """
    place = os.fspath(location)
    folder = Path(place)
    if folder.is_dir() and (folder / MANIFEST).is_file():
        return _written(folder)
    found = sorted(folder.iterdir()) if folder.is_dir() else sorted(map(Path, glob.glob(place)))
    paths = [p for p in found if p.suffix in _SUFFIXES and not p.name.startswith(".")]
    kinds = {path.suffix for path in paths}
    if len(kinds) != 1:
        problem = f"it has {' and '.join(sorted(kinds))} files" if kinds else "there are none"
        raise InputError(f"{place}: expected .parquet, .npy or .tar files of one kind; {problem}.")
    (kind,) = kinds
    return Dataset(place, _SHARDS[kind](paths))


def is_dataset(location: str | os.PathLike[str]) -> bool:
    """Whether a place holds shards, and is no single file or folder of images.

    >>> is_dataset("photos/*.parquet"), is_dataset("photos.tar"), is_dataset("photos.npy")
    (True, True, False)
    """
    place = os.fspath(location)
    folder = Path(place)
    if not folder.is_dir():
        return (
            bool(re.search(r"[*?\[]", place)) and not folder.exists()
        ) or folder.suffix == ".tar"
    suffixes = {path.suffix.lower() for path in folder.iterdir()}
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


def _written(folder: Path) -> Dataset:
    """A folder that lists its shards."""
    try:
        about = read_document(folder / MANIFEST)
        entries = [(folder / s["file"], int(s["rows"]), int(s["bytes"])) for s in about["shards"]]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{folder / MANIFEST} cannot be read ({error}).") from error
    for path, _, size in entries:
        if not path.is_file() or path.stat().st_size != size:
            raise InputError(
                f"{path} is missing or has changed since {MANIFEST} was written; encode it again."
            )
    shards: list[Shard] = [
        ParquetShard(path, rows)
        if path.suffix == ".parquet"
        else ArrayShard(path.stem, {"embedding": path}, rows)
        for path, rows, _ in entries
    ]
    return Dataset(str(folder), shards, about)


def _parquet_shards(paths: Sequence[Path]) -> list[Shard]:
    return [ParquetShard(path, _parquet().read_metadata(path).num_rows) for path in paths]


def _array_shards(paths: Sequence[Path]) -> list[Shard]:
    groups: dict[str, dict[str, Path]] = {}
    for path in paths:
        match = _ARRAY.fullmatch(path.name)
        column, number = (match["column"], match["number"]) if match else ("rows", path.stem)
        groups.setdefault(number, {})[column] = path
    shards: list[Shard] = []
    names = set(next(iter(groups.values())))
    for number, files in groups.items():
        counts = {name: len(load_array(path)) for name, path in files.items()}
        if set(counts) != names:
            raise InputError(
                f"The shard {number} has {', '.join(sorted(counts))}, and others have "
                f"{', '.join(sorted(names))}: {next(iter(files.values()))}."
            )
        if len(set(counts.values())) > 1:
            each = ", ".join(f"{name} {count:,}" for name, count in counts.items())
            raise InputError(f"The arrays of the shard {number} differ in rows: {each}.")
        shards.append(ArrayShard(number, files, next(iter(counts.values()))))
    return shards


def _tar_shards(paths: Sequence[Path]) -> list[Shard]:
    shards: list[Shard] = []
    for path in paths:
        with tarfile.open(path) as archive:
            shards.append(TarShard(path, sum(1 for _ in _samples(archive))))
    return shards


_SHARDS = {".parquet": _parquet_shards, ".npy": _array_shards, ".tar": _tar_shards}


def _samples(archive: tarfile.TarFile) -> Iterator[tuple[str, dict[str, tarfile.TarInfo]]]:
    """Samples of an archive: a key, and its files by suffix."""
    key, parts = "", dict[str, tarfile.TarInfo]()
    for member in archive:
        # The list of members would grow with the archive.
        archive.members = []  # type: ignore[attr-defined]
        if not member.isfile():
            continue
        folder, slash, name = member.name.rpartition("/")
        stem, _, suffix = name.partition(".")
        if folder + slash + stem != key:
            if parts:
                yield key, parts
            key, parts = folder + slash + stem, {}
        parts[suffix] = member
    if parts:
        yield key, parts


def _parquet() -> Any:
    return require("pyarrow.parquet", package="pyarrow", purpose="Reading Parquet")
