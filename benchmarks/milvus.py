"""Loads and searches of Milvus through our API and by pymilvus alone, and a server that is killed.

A server of our own (tests/retrieval/milvus_server.py) on this machine. Loads take turns, some
thousand rows at a time, into collections of the same columns: `Backend.upsert`, which every worker
of `ccal index` calls, and pymilvus' `insert` and `upsert` of the same rows. Searches take turns as
well: `Index.search_vectors` for the ten nearest with id, metadata and cosine in float64, and
pymilvus' `search` of the same collection with the same cells and fields. Medians of turns by the
clock. Run with

    python -m benchmarks.milvus [--rows 1000000] [--seconds 20]

which also saves the table, to benchmarks/milvus.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.retrieval import data, model
from benchmarks.timing import Row, show
from ccal.retrieval import Index
from ccal.retrieval.backends.milvus.backend import MilvusBackend
from ccal.retrieval.items import Item
from tests.retrieval.milvus_server import cache, install, start, stop

OUTPUT = Path("benchmarks/milvus.json")
PART, K = 20_000, 10


def clock(run: Callable[[], object]) -> tuple[float, float]:
    start_, used = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - start_, time.process_time() - used


def items_of(first: int, count: int) -> list[Item]:
    numbers = range(first, first + count)
    return [
        Item(f"photo {n}", "image", {"name": f"photo {n}", "year": 1900 + n % 100}) for n in numbers
    ]


def bare_rows(items: list[Item], vectors: Any, first: int) -> list[dict[str, Any]]:
    return [
        {
            "key": f"{first + n:032}",
            "number": first + n,
            "id": item.id,
            "modality": item.modality,
            "file": "",
            "metadata": dict(item.metadata),
            "vector": vector,
        }
        for n, (item, vector) in enumerate(zip(items, vectors, strict=True))
    ]


def loads(address: str, vectors: Any) -> tuple[Row, Index]:
    """Rows a second by each way, in turns; the index that ours has filled."""
    client = MilvusBackend(f"milvus://{address}/none")._server._client
    options: dict[str, Any] = {"modality": "image", "approximate_from": len(vectors)}
    indexes = [
        Index.build(f"milvus://{address}/{name}", model_, vectors[:0], **options)
        for name in ("ours", "inserted", "upserted")
    ]
    ours, inserted, upserted = (index._backend for index in indexes)
    assert isinstance(ours, MilvusBackend)
    assert isinstance(inserted, MilvusBackend)
    assert isinstance(upserted, MilvusBackend)
    ours.reserve(len(vectors))
    times: dict[str, list[tuple[float, float]]] = {n: [] for n in ("ours", "insert", "upsert")}

    def bare(method: str, into: str, some: list[Item], rows: Any, first: int) -> None:
        made = bare_rows(some, rows, first)
        for at in range(0, len(made), 4096):
            getattr(client, method)(into, made[at : at + 4096])

    bare_turns = 5
    for turn, first in enumerate(range(0, len(vectors), PART)):
        rows = vectors[first : first + PART]
        some = items_of(first, len(rows))

        def add(some: list[Item] = some, rows: Any = rows, first: int = first) -> None:
            for at in range(0, len(some), 4096):
                ours.upsert(some[at : at + 4096], rows[at : at + 4096], first + at + 1)

        times["ours"].append(clock(add))
        if turn < bare_turns or turn % 10 == 0:
            for method, backend in (("insert", inserted), ("upsert", upserted)):
                into = backend._now().collection
                times[method].append(clock(partial(bare, method, into, some, rows, first)))
    rates = {name: PART / statistics.median(t for t, _ in found) for name, found in times.items()}
    own = {
        name: statistics.median(u for _, u in found) / PART * 1e6 for name, found in times.items()
    }
    for name, backend in (("inserted", inserted), ("upserted", upserted)):
        collection = backend._now().collection
        client.drop_alias(name)
        client.drop_collection(collection)
    row: Row = {"measured": "load", "vectors": len(vectors)}
    row |= {f"{name} rows/s": round(rate) for name, rate in rates.items()}
    row |= {f"{name} client s per million": round(used, 1) for name, used in own.items()}
    row |= {f"ours / {n}": round(rates["ours"] / rates[n], 2) for n in ("insert", "upsert")}
    return row, indexes[0]


def searches(index: Index, vectors: Any, asked: Any, seconds: float) -> Row:
    """Milliseconds of one query, in turns; recall against the truth in memory."""
    backend = index._backend
    assert isinstance(backend, MilvusBackend)
    backend.finish_load()
    about = backend._now()
    client = backend._server._client
    fields = ["id", "modality", "metadata", "file"]

    def bare(query: Any) -> None:
        client.search(
            about.collection,
            data=[query],
            limit=K,
            output_fields=fields,
            search_params={"params": {"nprobe": about.probes}},
            consistency_level="Strong",
        )

    true = np.argsort(-(asked[:200] @ vectors.T), axis=1)[:, :K]
    answers = index.search_vectors(asked[:200], within="image", k=K)
    found = [{int(hit.id.split()[1]) for hit in hits} for hits in answers]
    recall = np.mean([len(f & set(t.tolist())) / K for f, t in zip(found, true, strict=True)])
    times: dict[str, list[float]] = {"ours": [], "bare": []}
    end, number = time.perf_counter() + seconds, 0
    while time.perf_counter() < end or number < 20:
        query = asked[number % len(asked)]
        number += 1
        times["ours"].append(
            clock(partial(index.search_vectors, query, within="image", k=K))[0] * 1e3
        )
        times["bare"].append(clock(partial(bare, query))[0] * 1e3)
    one, other = (statistics.median(times[name]) for name in ("ours", "bare"))
    return {
        "measured": "search",
        "vectors": len(vectors),
        "cells": about.cells,
        "probes": about.probes,
        "recall": round(float(recall), 4),
        "ours ms": round(one, 2),
        "bare ms": round(other, 2),
        "ours / bare": round(one / other, 2),
    }


model_ = model()


def main() -> None:
    parser = argparse.ArgumentParser(description="Milvus by our API and by pymilvus alone.")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=20.0)
    arguments = parser.parse_args()
    vectors, asked = (part.numpy() for part in data(arguments.rows))
    folder = cache()
    install(folder)
    with tempfile.TemporaryDirectory() as place:
        process, address = start(folder, Path(place, "data"))
        try:
            loaded, index = loads(address, vectors)
            show("Milvus", [loaded])
            searched = searches(index, vectors, asked, arguments.seconds)
            show("Milvus", [searched])
        finally:
            stop(process)
    results: list[Row] = json.loads(OUTPUT.read_text()) if OUTPUT.exists() else []
    results = [r for r in results if r["vectors"] != arguments.rows]
    OUTPUT.write_text(json.dumps([*results, loaded, searched], indent=1) + "\n")


if __name__ == "__main__":
    main()
