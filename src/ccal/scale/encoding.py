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
from ccal.files import document, file_hash, new_file
from ccal.model import DualEncoder
from ccal.optional import require
from ccal.retrieval.embedding import fingerprint
from ccal.runs import load_model
from ccal.scale.engines import Engine, Work
from ccal.scale.formats import KEY, ArrayShard, Batch
from ccal.scale.shards import MANIFEST, Dataset
from ccal.scale.storage import (
    alone_at,
    files_of,
    join,
    open_file,
    remove_file,
    write_file,
    written_here,
)
from ccal.scale.tasks import ShardTask, batch_size

Format = Literal["npy", "parquet"]
Row = dict[str, Any]

_LOG = "done.jsonl"
_FORMAT = 1


@dataclass(frozen=True)
class _Job:
    """What a worker needs to embed shards."""

    model: str
    modality: str
    column: str
    keep: tuple[str, ...]
    folder: str


@dataclass(frozen=True)
class _Task(ShardTask):
    """A shard whose embeddings go into `file`."""

    file: str


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
    target = os.fspath(folder)
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
    with alone_at(target):
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
        for _, entry in engine.map(partial(_start, job), tasks, report):
            done[entry["file"]] = entry
            _note(target, plan, done)
        about = {
            **plan,
            "model_folder": job.model,
            "source": dataset.location,
            "rows": dataset.rows,
            "shards": [done[file] for file in files],
        }
        write_file(join(target, MANIFEST), document(about))
        remove_file(join(target, _LOG))
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


def _begin(folder: str, plan: Mapping[str, Any]) -> dict[str, Row]:
    """The shards that an earlier call has written; files that it was writing are removed."""
    sizes = {Path(path).name: size for path, size in files_of(folder).items()}
    if MANIFEST in sizes:
        raise InputError(f"{folder} is complete; name another folder, or remove it first.")
    lines: list[bytes] = []
    if _LOG in sizes:
        with open_file(join(folder, _LOG)) as file:
            lines = file.read().split(b"\n")[:-1]
    if not lines:
        ours = (".lock", _LOG, ".embedding-", f".{_LOG}")
        if strange := [name for name in sizes if not name.startswith(ours)]:
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
    for name in sizes:
        if name.startswith(".embedding-"):
            remove_file(join(folder, name))
    entries = [json.loads(line) for line in lines[1:]]
    done = {e["file"]: e for e in entries if sizes.get(e["file"]) == e["bytes"]}
    _note(folder, plan, done)
    return done


def _note(folder: str, plan: Mapping[str, Any], done: Mapping[str, Row]) -> None:
    """Write down which shards are done."""
    lines = [json.dumps(entry) + "\n" for entry in (plan, *done.values())]
    write_file(join(folder, _LOG), "".join(lines).encode())


def _start(job: _Job) -> Work[_Task, Row]:
    return partial(_encode, job, load_model(job.model))


def _encode(job: _Job, model: DualEncoder, task: _Task) -> Generator[int, None, Row]:
    def make(batch: Batch, _: int) -> tuple[NDArray[Any], Batch]:
        embedded = model.encode(job.modality, read_content(batch, job.column)).numpy()
        if not (finite := np.isfinite(embedded).all(1)).all():
            bad = int(np.flatnonzero(~finite)[0])
            raise InputError(f"the embedding of row {bad} of these is not finite.")
        return embedded, {name: batch[name] for name in job.keep}

    columns = list(dict.fromkeys([job.column, *job.keep]))
    with written_here(join(job.folder, task.file)) as path:
        with _writer(path, task.shard.rows) as write:
            for rows, made in task.read(columns, batch_size(model, job.modality), make):
                write(*made)
                yield rows
        entry = {"bytes": path.stat().st_size, "sha256": file_hash(path)}
    return {"file": task.file, "source": task.shard.name, "rows": task.shard.rows, **entry}


@contextmanager
def _writer(path: Path, rows: int) -> Iterator[Callable[[NDArray[Any], Batch], None]]:
    """A function that writes embeddings (n, d) with further columns to a file, whole or not."""
    with new_file(path) as file:
        if path.suffix == ".npy":
            yield _array_writer(file, rows)
        else:
            with _parquet_writer(file) as write:
                yield write


def _array_writer(file: BinaryIO, rows: int) -> Callable[[NDArray[Any], Batch], None]:
    def write(embedded: NDArray[Any], _: Batch) -> None:
        if not file.tell():
            shape = rows, embedded.shape[1]
            about = {"descr": "<f4", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, about)
        file.write(np.ascontiguousarray(embedded, "<f4").data)

    return write


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
