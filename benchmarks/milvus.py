r"""Loads and searches of Milvus through our API and by pymilvus alone.

The server is our own (tests/retrieval/milvus_server.py), or one that goes on between runs, so that
a million vectors can be measured step by step. Loads take turns, some thousand rows at a time, into
collections of the same columns: `Backend.upsert`, which every worker of `ccal index` calls, and
pymilvus' `insert` and `upsert` of the same rows. Searches take turns as well:
`Index.search_vectors` for the ten nearest with id, metadata and cosine in float64, and pymilvus'
`search` of the same collection with the same cells and fields. Medians by the clock. Vectors are
clusters; or, with a file of pairs that benchmarks.cross_modal keeps, mixtures of photos, and
queries are captions too. Run with

    python -m benchmarks.milvus load search cells search [--rows 1000000] [--pairs FILE] \
        [--milvus HOST:PORT]

Results are added to benchmarks/milvus.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cross_modal import QUERIES, mixed, queries_of, share
from benchmarks.retrieval import data, model
from benchmarks.timing import Row, medians, show
from ccal.retrieval import Index
from ccal.retrieval.backends.milvus.backend import MilvusBackend
from ccal.retrieval.backends.milvus.server import EXACT
from ccal.retrieval.exact import nearest
from ccal.retrieval.items import Item
from tests.retrieval.milvus_server import running

OUTPUT = Path("benchmarks/milvus.json")
PART, REQUEST, K, ASKED = 20_000, 4096, 10, 200
BARE_TURNS = 5
FIELDS = ["id", "modality", "metadata", "file"]
Kinds = dict[str, Any]


def vectors_of(rows: int, pairs: Path | None) -> tuple[Any, Any, Kinds]:
    """Photos (rows, 128), captions, and queries of several kinds."""
    if pairs is None:
        vectors, asked = (part.numpy() for part in data(rows))
        return vectors, vectors[:0], {"own modality": asked}
    photos, captions = np.load(pairs).values()
    x, y = mixed(photos, captions, rows + QUERIES, np.random.default_rng(0))
    items, others, kinds = queries_of(x, y, np.random.default_rng(1))
    return items, others[:20_000], kinds


def items_of(first: int, count: int, modality: str = "image") -> list[Item]:
    return [
        Item(f"{modality} {n}", modality, {"name": f"photo {n}", "year": 1900 + n % 100})
        for n in range(first, first + count)
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


def backend_of(index: Index) -> MilvusBackend:
    assert isinstance(index._backend, MilvusBackend)
    return index._backend


def load(address: str, vectors: Any, others: Any) -> Row:
    """Rows a second by each way, in turns; ours goes on to the end."""
    options: dict[str, Any] = {"modality": "image", "approximate_from": len(vectors)}
    options |= {"replace": True}
    names = ("ours", "insert", "upsert")
    indexes = {
        name: Index.build(f"milvus://{address}/{name}", model(), vectors[:0], **options)
        for name in names
    }
    backends = {name: backend_of(index) for name, index in indexes.items()}
    ours, client = backends["ours"], backends["ours"]._server._client
    first = ours.reserve(len(vectors) + len(others))
    times: dict[str, list[tuple[float, float, int]]] = {name: [] for name in names}

    def add(items: list[Item], rows: Any, number: int) -> None:
        for at in range(0, len(items), REQUEST):
            ours.upsert(items[at : at + REQUEST], rows[at : at + REQUEST], number + at)

    def bare(method: str, items: list[Item], rows: Any, number: int) -> None:
        made, into = bare_rows(items, rows, number), backends[method]._now().collection
        for at in range(0, len(made), REQUEST):
            getattr(client, method)(into, made[at : at + REQUEST])

    for turn, start in enumerate(range(0, len(vectors), PART)):
        rows = vectors[start : start + PART]
        items = items_of(start, len(rows))
        work: dict[str, Callable[..., None]] = {"ours": add}
        if turn < BARE_TURNS or turn % 10 == 0:
            work |= {name: partial(bare, name) for name in ("insert", "upsert")}
        for name, run in work.items():
            began, used = time.perf_counter(), time.process_time()
            run(items, rows, first + start)
            spent = time.perf_counter() - began, time.process_time() - used
            times[name].append((*spent, len(rows)))
    add(items_of(0, len(others), "text"), others, first + len(vectors))
    for name in ("insert", "upsert"):
        collection = backends[name]._now().collection
        client.drop_alias(name)
        client.drop_collection(collection)
    both = [turn for turn in range(len(times["ours"])) if turn < BARE_TURNS or turn % 10 == 0]
    row: Row = {"measured": "load", "vectors": len(vectors)}
    rates = {}
    for name, found in times.items():
        compared = [found[turn] for turn in both] if name == "ours" else found
        rates[name] = statistics.median(count / spent for spent, _, count in compared)
        used = sum(used for _, used, _ in found) / sum(count for *_, count in found)
        row |= {
            f"{name} rows/s": round(rates[name]),
            f"{name} client s per 10^6": round(used * 1e6),
        }
    row["ours, all turns, s"] = round(sum(spent for spent, *_ in times["ours"]))
    return row | {f"ours / {n}": round(rates["ours"] / rates[n], 2) for n in ("insert", "upsert")}


def cells(address: str) -> Row:
    """Seconds until the index for approximate search is built and its probes are chosen."""
    with Index.open(f"milvus://{address}/ours") as index:
        start = time.perf_counter()
        backend_of(index).finish_load()
        about = backend_of(index)._now()
        return {
            "measured": "cells",
            "vectors": index.count("image"),
            "cells": about.cells,
            "probes": about.probes,
            "seconds": round(time.perf_counter() - start),
        }


def search(address: str, vectors: Any, kinds: Kinds, seconds: float) -> Row:
    """Milliseconds of one query, in turns; recall against the truth in memory."""
    with Index.open(f"milvus://{address}/ours") as index:
        about = backend_of(index)._now()
        probes = about.probes if about.cells else EXACT
        client = backend_of(index)._server._client
        row: Row = {"measured": "search", "vectors": len(vectors)}
        row |= {"cells": about.cells, "probes": about.probes}
        for kind, queries in kinds.items():
            asked = queries[:ASKED]
            true = nearest(asked, vectors, K).positions[:, :K]
            answers = index.search_vectors(asked, within="image", k=K)
            found = [[int(hit.id.split()[1]) for hit in hits] for hits in answers]
            row[f"recall, {kind}"] = round(share(np.array(found), true), 4)
        turn = iter(range(1 << 30))

        def bare(level: str, condition: str, fields: list[str] = FIELDS, k: int = K) -> None:
            client.search(
                about.collection,
                data=[asked[next(turn) % len(asked)]],
                limit=k,
                filter=condition,
                output_fields=fields,
                search_params={"params": {"nprobe": probes}},
                consistency_level=level,
            )

        image = 'modality in ["image"]'
        with Index.open(f"milvus://{address}/ours?consistency=Eventually") as late:
            by = {
                name: lambda i=i: i.search_vectors(
                    asked[next(turn) % len(asked)], within="image", k=K
                )
                for name, i in (("ours", index), ("ours, eventual", late))
            }
            found_ms = medians(
                {
                    **by,
                    "bare": partial(bare, "Strong", ""),
                    "bare, filter": partial(bare, "Strong", image),
                    "bare, vectors too": partial(bare, "Strong", "", [*FIELDS, "vector"]),
                    "bare, eventual": partial(bare, "Eventually", ""),
                    "bare, eventual, filter": partial(bare, "Eventually", image),
                },
                seconds,
            )
    row |= {f"{name} ms": round(value, 2) for name, value in found_ms.items()}
    row["ours / bare"] = round(found_ms["ours"] / found_ms["bare"], 2)
    row["eventual: ours / bare"] = round(found_ms["ours, eventual"] / found_ms["bare, eventual"], 2)
    return row


@contextmanager
def server(address: str | None) -> Iterator[str]:
    """The address of a server that runs, or of one for this run."""
    if address is not None:
        yield address
        return
    with tempfile.TemporaryDirectory() as folder, running(Path(folder, "data")) as found:
        yield found


def main() -> None:
    parser = argparse.ArgumentParser(description="Milvus by our API and by pymilvus alone.")
    parser.add_argument("steps", nargs="+", choices=("load", "cells", "search"))
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--pairs", type=Path, metavar="FILE")
    parser.add_argument("--milvus", metavar="HOST:PORT")
    parser.add_argument("--seconds", type=float, default=30.0)
    arguments = parser.parse_args()
    vectors, others, kinds = vectors_of(arguments.rows, arguments.pairs)
    with server(arguments.milvus) as address:
        steps: dict[str, Callable[[], Row]] = {
            "load": lambda: load(address, vectors, others),
            "cells": lambda: cells(address),
            "search": lambda: search(address, vectors, kinds, arguments.seconds),
        }
        for step in arguments.steps:
            row = steps[step]()
            show("Milvus", [row])
            results: list[Row] = json.loads(OUTPUT.read_text()) if OUTPUT.exists() else []
            same = [row.get(name) for name in ("measured", "vectors", "cells")]
            results = [
                r
                for r in results
                if [r.get(name) for name in ("measured", "vectors", "cells")] != same
            ]
            OUTPUT.write_text(json.dumps([*results, row], indent=1) + "\n")


if __name__ == "__main__":
    main()
