"""An index of a dataset of shards, filled by many workers."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ccal.errors import CcalError, InputError
from ccal.model import DualEncoder
from ccal.retrieval import Index
from ccal.retrieval.backends import exists, open_backend
from ccal.retrieval.backends.base import Vectors
from ccal.retrieval.embedding import embed, fingerprint, unit_vectors
from ccal.retrieval.items import Item, OtherModelError, make_items
from ccal.runs import load_model
from ccal.scale.encoding import only_column, read_content
from ccal.scale.engines import Engine, Work
from ccal.scale.formats import KEY, Batch
from ccal.scale.shards import Dataset
from ccal.scale.tasks import ShardTask, batch_size

T = TypeVar("T")
Part = tuple[list[Item], Vectors]

_PATIENCE = 600.0
"""Seconds for which a server that does not answer is asked again."""


@dataclass(frozen=True)
class _Job:
    """What a worker needs to embed shards and to write them to an index."""

    model: str
    modality: str
    column: str
    embedded: bool
    id: str | None
    metadata: tuple[str, ...]
    location: str
    writes: bool


@dataclass(frozen=True)
class _Task(ShardTask):
    """A shard whose items are numbered from `first` on."""

    first: int


def index_dataset(
    dataset: Dataset,
    model_folder: str | os.PathLike[str],
    modality: str,
    location: str | os.PathLike[str],
    engine: Engine[Any],
    *,
    column: str | None = None,
    id_column: str | None = None,
    metadata: Sequence[str] = (),
    progress: Callable[[int, int], None] | None = None,
    **form: Any,
) -> int:
    """Put every row into an index, a new one or one that exists; returns how many there are.

    Rows are embedded, unless the dataset is one that `encode_dataset` wrote with this model. An
    item takes the place of one with the same id, so that a load may be repeated. The index notes
    which shards it has; a repeated load goes on with the others. Milvus and PostgreSQL are written
    by all workers; into a folder this process writes what they embed.

    Args:
        id_column: of ids, each of which occurs once; the names of samples in WebDataset archives,
            and numbers of rows elsewhere, by default.
        metadata: columns to keep with each item.
        form: of a new index, as `Index.build` takes it: dtype, dims, approximate_from, codes.
    """
    model, place = load_model(model_folder), os.fspath(location)
    embedded = _check_manifest(dataset, model, modality)
    column = "embedding" if embedded and column is None else only_column(dataset, column)
    id_column = KEY if id_column is None and KEY in dataset.columns else id_column
    dataset.check_columns([column, *metadata, *([id_column] if id_column else [])])
    form = {name: value for name, value in form.items() if value is not None}
    if not exists(place):
        given: dict[str, Any] = {"modality": modality, "model_folder": model_folder}
        Index.build(place, model, [], **given, **form).close()
    elif form:
        raise InputError(f"{place} exists; its form cannot be changed.")
    key = json.dumps([dataset.fingerprint(), fingerprint(model), modality, column, id_column])
    key = f"load.{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    with Index.open(place, model) as index:
        backend = index._backend
        index.binding.check_modality(modality)
        if embedded and index.binding.dims is not None:
            raise InputError("dims cuts what is embedded now; these embeddings are ready-made.")
        noted = backend.recall(key)
        if noted is None:
            state: dict[str, Any] = {"first": backend.reserve(dataset.rows), "done": "0"}
            backend.note(key, json.dumps(state))
        else:
            state = json.loads(noted)
        done, first = int(str(state["done"]), 16), int(state["first"])
        shards, starts = dataset.shards, dataset.starts
        left = [number for number in range(len(shards)) if not done >> number & 1]
        count = dataset.rows - sum(shards[number].rows for number in left)
        writes, folder = backend.many_writers, str(Path(model_folder).absolute())
        columns = (column, embedded, id_column, tuple(metadata))
        job = _Job(folder, modality, *columns, place, writes)
        tasks = [_Task(shards[number], first + starts[number]) for number in left]

        def report(more: int) -> None:
            nonlocal count
            count += more
            if progress is not None:
                progress(count, dataset.rows)

        for number, parts in engine.map(partial(_start, job), tasks, report):
            for part, at in _numbered(parts, tasks[number].first):
                backend.upsert(*part, at)
            done |= 1 << left[number]
            _patiently(backend.note, key, json.dumps({"first": first, "done": f"{done:x}"}))
        _patiently(backend.finish_load)
    return dataset.rows


def _check_manifest(dataset: Dataset, model: DualEncoder, modality: str) -> bool:
    """Whether a dataset holds embeddings of this model; those of others are refused."""
    about = dataset.manifest
    if about is None or "model" not in about:
        return False
    if about["model"] != fingerprint(model):
        raise OtherModelError(
            f"{dataset.location} holds embeddings of another model (fingerprint "
            f"{about['model'][:12]}, from {about.get('model_folder')}); encode the rows again."
        )
    if about["modality"] != modality:
        raise InputError(f"{dataset.location} holds {about['modality']} items, not {modality}.")
    return True


def _start(job: _Job) -> Work[_Task, list[Part]]:
    """What a worker does with each shard: embed, and write if it may."""
    model = load_model(job.model)
    backend = _patiently(open_backend, job.location)
    if not job.writes:
        binding = backend.binding
        with closing(backend):
            return partial(_load, job, model, binding.dims, binding.dim, None)
    return partial(_load, job, model, backend.binding.dims, backend.binding.dim, backend)


def _load(
    job: _Job, model: DualEncoder, dims: int | None, width: int, backend: Any, task: _Task
) -> Generator[int, None, list[Part]]:
    columns = dict.fromkeys([job.column, *([job.id] if job.id else []), *job.metadata])
    parts: list[Part] = []

    def make(batch: Batch, row: int) -> Part:
        content = read_content(batch, job.column)
        if job.embedded:
            vectors = unit_vectors(content, width, job.column)
        else:
            vectors = embed(model, job.modality, content, dims)
        return _items(job, batch, task.first + row, len(vectors)), vectors

    first = task.first
    for rows, part in task.read(list(columns), batch_size(model, job.modality), make):
        if backend is None:
            parts.append(part)
        else:
            _patiently(backend.upsert, *part, first)
        first += rows
        yield rows
    return parts


def _items(job: _Job, batch: Batch, first: int, count: int) -> list[Item]:
    if job.id is None:
        ids = [f"{job.modality}-{number}" for number in range(first, first + count)]
    else:
        ids = [str(id) for id in batch[job.id]]
    text = batch[job.column]
    facts: list[dict[str, Any]] = [{} for _ in range(count)]
    if not isinstance(text, np.ndarray) and isinstance(text[0], str):
        facts = [{"text": line} for line in text]
    for name in job.metadata:
        values = batch[name]
        values = values.tolist() if isinstance(values, np.ndarray) else values
        for fact, value in zip(facts, values, strict=True):
            fact[name] = value
    return make_items(job.modality, count, ids, facts, None)


def _numbered(parts: Sequence[Part], first: int) -> Iterator[tuple[Part, int]]:
    for part in parts:
        yield part, first
        first += len(part[0])


def _patiently(ask: Callable[..., T], *arguments: Any) -> T:
    """The answer of a server; asked again while it is gone, as when it is started again."""
    end, pause = time.monotonic() + _PATIENCE, 0.5
    while True:
        try:
            return ask(*arguments)
        except CcalError as error:
            if isinstance(error, InputError) or time.monotonic() > end:
                raise
        time.sleep(pause)
        pause = min(2 * pause, 10.0)
