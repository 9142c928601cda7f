"""Embeddings of a dataset of shards, as shards: each written whole, all listed in a manifest."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ccal.bounds import Options, check
from ccal.errors import InputError
from ccal.features import reads_images
from ccal.files import alone_in, file_hash, new_file, write_atomically, write_document
from ccal.model import DualEncoder
from ccal.optional import require
from ccal.retrieval.embedding import fingerprint
from ccal.runs import load_model
from ccal.scale.engines import Engine, Work
from ccal.scale.shards import KEY, MANIFEST, ArrayShard, Batch, Dataset, Shard

Format = Literal["npy", "parquet"]
Row = dict[str, Any]
ROWS, IMAGES = 4096, 64
"""Rows that are embedded at a time, and images, for which networks take long."""

_LOG = "done.jsonl"
_FORMAT = 1


@dataclass(frozen=True)
class _Job:
    """What a worker needs to embed shards."""

    model: str
    modality: str
    column: str
    keep: tuple[str, ...]
    folder: Path


@dataclass(frozen=True)
class _Task:
    shard: Shard
    file: str

    def __str__(self) -> str:
        return f"shard {self.shard.name}"


def encode_dataset(
    dataset: Dataset,
    model_folder: str | os.PathLike[str],
    modality: str,
    folder: str | os.PathLike[str],
    engine: Engine[Any],
    *,
    column: str | None = None,
    keep: Sequence[str] = (),
    format: Format | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Embed a column of every row; returns the manifest, which the folder then has.

    Workers load the model once. Each shard of embeddings gets its name when it is complete, and is
    then noted in the folder's `done.jsonl`; whoever repeats a call that was killed goes on from
    there, and ends with the same files. The manifest is written last.

    Args:
        model_folder: a run, or a saved model.
        column: of what the model embeds; needed if there are several.
        keep: columns that go along, such as ids; they need `format="parquet"`.
        format: "npy" files hold embeddings only, "parquet" has the columns `embedding` and `keep`.
            By default that of the dataset; WebDataset archives become Parquet.
    """
    check("format", format, Options(None, *get_args(Format)))
    model = load_model(model_folder)
    column = only_column(dataset, column)
    dataset.check_columns([column, *keep])
    arrays = isinstance(dataset.shards[0], ArrayShard)
    format = format or ("npy" if arrays and not keep else "parquet")
    if keep and format == "npy":
        raise InputError(f"A .npy file cannot keep {', '.join(keep)}; choose the format parquet.")
    target = Path(folder)
    width = max(5, len(str(len(dataset.shards) - 1)))
    files = [f"embedding-{number:0{width}}.{format}" for number in range(len(dataset.shards))]
    plan = {
        "format": _FORMAT,
        "model": fingerprint(model),
        "modality": modality,
        "dataset": dataset.fingerprint(),
        "columns": [column, *keep],
        "files": format,
    }
    if modality not in model.modalities:
        raise InputError(
            f"{model_folder} joins {' and '.join(model.modalities)}; it has no {modality!r}."
        )
    with alone_in(target):
        done = _begin(target, plan)
        tasks = [
            _Task(shard, file)
            for shard, file in zip(dataset.shards, files, strict=True)
            if file not in done
        ]
        count = sum(int(entry["rows"]) for entry in done.values())

        def report(more: int) -> None:
            nonlocal count
            count += more
            if progress is not None:
                progress(count, dataset.rows)

        job = _Job(str(Path(model_folder).absolute()), modality, column, tuple(keep), target)
        with (target / _LOG).open("ab") as log:
            for _, entry in engine.map(partial(_start, job), tasks, report):
                done[entry["file"]] = entry
                log.write(json.dumps(entry).encode() + b"\n")
                log.flush()
                os.fsync(log.fileno())
        about = {
            **plan,
            "model_folder": job.model,
            "source": dataset.location,
            "rows": dataset.rows,
            "shards": [done[file] for file in files],
        }
        write_document(target / MANIFEST, about)
        (target / _LOG).unlink()
    return about


def only_column(dataset: Dataset, column: str | None) -> str:
    """The column that is given, or the only one."""
    names = [name for name in dataset.columns if name != KEY]
    if column is None and len(names) != 1:
        raise InputError(
            f"{dataset.location} has the columns {', '.join(names)}; name one with --column."
        )
    return column or names[0]


def read_content(batch: Batch, column: str) -> Any:
    """A column as `DualEncoder.encode` takes it."""
    values = batch[column]
    # Mapped rows are read once, and torch wants memory that it may write to.
    return np.array(values) if isinstance(values, np.ndarray) else values


def _begin(folder: Path, plan: Mapping[str, Any]) -> dict[str, Row]:
    """The shards that an earlier call has written; files that it was writing are removed."""
    if (folder / MANIFEST).exists():
        raise InputError(f"{folder} is complete; name another folder, or remove it first.")
    lines = (folder / _LOG).read_bytes().split(b"\n")[:-1] if (folder / _LOG).exists() else []
    found = {path.name for path in folder.iterdir()} - {".lock", _LOG}
    if not lines:
        strange = [name for name in found if not name.startswith((".embedding-", f".{_LOG}"))]
        if strange:
            raise InputError(
                f"{folder} is not empty: it holds {strange[0]!r}. Name another folder."
            )
        lines = [json.dumps(plan).encode()]
    elif json.loads(lines[0]) != plan:
        before = json.loads(lines[0])
        changed = ", ".join(name for name in plan if plan[name] != before.get(name))
        raise InputError(
            f"{folder} holds part of another job, which differs in: {changed}. Name another "
            "folder, or remove this one."
        )
    for path in folder.glob(".embedding-*"):
        path.unlink()
    # Without a line that was cut short, to which the next one would be joined.
    write_atomically(folder / _LOG, *(line + b"\n" for line in lines))
    entries = [json.loads(line) for line in lines[1:]]
    return {
        entry["file"]: entry
        for entry in entries
        if (path := folder / entry["file"]).is_file() and path.stat().st_size == entry["bytes"]
    }


def _start(job: _Job) -> Work[_Task, Row]:
    return partial(_encode, job, load_model(job.model))


def _encode(job: _Job, model: DualEncoder, task: _Task) -> Generator[int, None, Row]:
    path = job.folder / task.file
    size = IMAGES if reads_images(model.front_ends.get(job.modality)) else ROWS
    rows = 0
    with _writer(path, task.shard.rows) as write:
        for batch in task.shard.batches([job.column, *job.keep], size):
            try:
                embedded = model.encode(job.modality, read_content(batch, job.column)).numpy()
            except InputError as error:
                raise InputError(f"{task}, from row {rows}: {error}") from error
            if not np.isfinite(embedded).all():
                bad = rows + int(np.flatnonzero(~np.isfinite(embedded).all(1))[0])
                raise InputError(f"{task}: row {bad} (from 0) has an embedding that is not finite.")
            write(embedded, {name: batch[name] for name in job.keep})
            rows += len(embedded)
            yield len(embedded)
    entry = {"rows": rows, "bytes": path.stat().st_size, "sha256": file_hash(path)}
    return {"file": task.file, "source": task.shard.name, **entry}


@contextmanager
def _writer(path: Path, rows: int) -> Iterator[Callable[[NDArray[Any], Batch], None]]:
    """A function that writes embeddings (n, d) with further columns to a file, whole or not."""
    with new_file(path) as file:
        if path.suffix == ".npy":
            with _array_writer(file, rows) as write:
                yield write
        else:
            with _parquet_writer(file) as write:
                yield write


@contextmanager
def _array_writer(file: BinaryIO, rows: int) -> Iterator[Callable[[NDArray[Any], Batch], None]]:
    written = 0

    def write(embedded: NDArray[Any], _: Batch) -> None:
        nonlocal written
        if not written:
            shape = rows, embedded.shape[1]
            about = {"descr": "<f4", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, about)
        file.write(np.ascontiguousarray(embedded, "<f4").data)
        written += len(embedded)

    yield write
    if written != rows:
        raise InputError(f"The shard has {written:,} rows, and {rows:,} were expected.")


@contextmanager
def _parquet_writer(file: BinaryIO) -> Iterator[Callable[[NDArray[Any], Batch], None]]:
    arrow = require("pyarrow", package="pyarrow", purpose="Writing Parquet")
    parquet = require("pyarrow.parquet", package="pyarrow", purpose="Writing Parquet")
    writer: Any = None

    def write(embedded: NDArray[Any], kept: Batch) -> None:
        nonlocal writer
        flat = arrow.array(np.ascontiguousarray(embedded, np.float32).reshape(-1))
        columns = {name: arrow.array(list(values)) for name, values in kept.items()}
        columns["embedding"] = arrow.FixedSizeListArray.from_arrays(flat, embedded.shape[1])
        table = arrow.table(columns)
        if writer is None:
            writer = parquet.ParquetWriter(file, table.schema)
        writer.write_table(table.cast(writer.schema))

    try:
        yield write
    finally:
        if writer is not None:
            writer.close()
