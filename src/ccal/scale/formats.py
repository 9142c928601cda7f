"""The kinds of files that hold shards: Parquet, `.npy` arrays and WebDataset archives."""

from __future__ import annotations

import io
import json
import math
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ccal.data.arrays import load_array
from ccal.errors import InputError
from ccal.optional import require
from ccal.scale.storage import is_remote, open_file

KEY = "__key__"
"""The column with the name of each sample of a WebDataset archive."""
Batch = Mapping[str, Any]
"""By column, n values: an array (n, ...), or a list of texts, images as bytes, or JSON."""

_ARRAY = re.compile(r"(?P<column>\w+?)-(?P<number>\d[\w-]*)\.npy")


@dataclass(frozen=True)
class _FileShard:
    """A shard in one file."""

    path: str
    rows: int

    @property
    def name(self) -> str:
        """The name of the file without its suffix."""
        return Path(self.path).stem


class ParquetShard(_FileShard):
    """A Parquet file; lists of numbers of equal length are the rows of an array."""

    def columns(self) -> list[str]:
        """The names of all columns."""
        with open_file(self.path) as source:
            return list(_parquet().read_schema(source).names)

    def batches(self, columns: Sequence[str], size: int) -> Iterator[Batch]:
        """All rows of some columns."""
        with open_file(self.path) as source, _parquet().ParquetFile(source) as file:
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
    paths: Mapping[str, str]
    rows: int

    def columns(self) -> list[str]:
        """The names of all columns."""
        return list(self.paths)

    def batches(self, columns: Sequence[str], size: int) -> Iterator[Batch]:
        """All rows of some columns."""
        streams = [_array_rows(self.paths[name], self.rows, size) for name in columns]
        for parts in zip(*streams, strict=True):
            yield dict(zip(columns, parts, strict=True))


class TarShard(_FileShard):
    """A WebDataset archive: files of equal names but for the suffix are one sample."""

    def columns(self) -> list[str]:
        """The name of each sample, and the suffixes of the first one."""
        with _archive(self.path) as archive:
            return [KEY, *next((parts for _, parts in _samples(archive)), ())]

    def batches(self, columns: Sequence[str], size: int) -> Iterator[Batch]:
        """All rows of some columns."""
        rows: list[list[Any]] = []
        with _archive(self.path) as archive:
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


def shards_in(paths: Sequence[str]) -> list[ParquetShard | ArrayShard | TarShard]:
    """The shards in some files of one kind."""
    if paths[0].endswith(".npy"):
        return [*_array_shards(paths)]
    if paths[0].endswith(".tar"):
        return [TarShard(path, _tar_length(path)) for path in paths]
    return [ParquetShard(path, _parquet_length(path)) for path in paths]


def _array_shards(paths: Sequence[str]) -> list[ArrayShard]:
    groups: dict[str, dict[str, str]] = {}
    for path in paths:
        match = _ARRAY.fullmatch(Path(path).name)
        column, number = (match["column"], match["number"]) if match else ("rows", Path(path).stem)
        groups.setdefault(number, {})[column] = path
    shards = []
    names = set(next(iter(groups.values())))
    for number, files in groups.items():
        counts = {name: _array_length(path) for name, path in files.items()}
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


def _parquet_length(path: str) -> int:
    with open_file(path) as source:
        return int(_parquet().read_metadata(source).num_rows)


def _tar_length(path: str) -> int:
    with _archive(path) as archive:
        return sum(1 for _ in _samples(archive))


def _array_length(path: str) -> int:
    if not is_remote(path):
        return len(load_array(path))
    with open_file(path) as file:
        return _array_header(file, path)[0][0]


def _array_rows(path: str, rows: int, size: int) -> Iterator[np.ndarray[Any, Any]]:
    """The rows of an array, `size` at a time: mapped into memory, or from an object store."""
    starts = range(0, rows, size)
    if not is_remote(path):
        array = load_array(path)
        yield from (array[start : start + size] for start in starts)
        return
    with open_file(path) as file:
        (_, *shape), dtype = _array_header(file, path)
        for start in starts:
            count = min(size, rows - start)
            content = file.read(count * math.prod(shape) * dtype.itemsize)
            yield np.frombuffer(content, dtype).reshape(count, *shape)


def _array_header(file: BinaryIO, path: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """The shape and type of an array, whose rows follow in the file."""
    form = np.lib.format
    try:
        read = {(1, 0): form.read_array_header_1_0, (2, 0): form.read_array_header_2_0}
        shape, by_columns, dtype = read[form.read_magic(file)](file)
    except (ValueError, KeyError) as error:
        raise InputError(f"{path}: not a readable .npy file ({error}).") from error
    if by_columns or len(shape) < 2 or 0 in shape or dtype.kind not in "fiub":
        raise InputError(
            f"{path}: expected rows of numbers, at least one; it holds {dtype} of shape {shape}"
            f"{', by columns' if by_columns else ''}."
        )
    return shape, dtype


@contextmanager
def _archive(path: str) -> Iterator[tarfile.TarFile]:
    with open_file(path) as file, tarfile.open(fileobj=file) as archive:
        yield archive


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
