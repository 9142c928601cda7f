"""What a writer does besides changes: rows that count no more go, large indexes get cells."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ccal.retrieval.backends.milvus.rows import GRAVES, as_vectors, buried, chunks, partitions
from ccal.retrieval.backends.milvus.server import Server
from ccal.retrieval.backends.milvus.state import State

__all__ = ["make_cells", "make_index", "sweep", "wanted_cells"]

RECALL = 0.99
_SAMPLE = 200
_DELETED = 5000


def sweep(server: Server, state: State, changes: Iterator[int]) -> State:
    """Delete rows that are removed.

    It is announced first, so that whoever reads an earlier state knows that rows may be missing.
    """
    gone = buried(server, state)
    announced = replace(state, swept=state.change, change=next(changes))
    server.commit(announced)
    notes = server.query(state, state.visible(), [], [GRAVES])
    for rows in (sorted(gone), [int(note["row"]) for note in notes]):
        for part in chunks(rows, _DELETED):
            server.call("delete", state.collection, ids=list(part))
    done = replace(announced, buried=0, change=next(changes))
    server.commit(done)
    return done


def wanted_cells(state: State) -> int:
    """Cells for approximate search among so many items; 0 if they are few."""
    largest = max(state.counts.values(), default=0)
    if largest < state.bound.approximate_from:
        return 0
    # Milvus makes cells for each of its segments, which hold a million vectors or so.
    return int(max(16, min(4 * min(largest, 1_000_000) ** 0.5, largest // 40)))


def make_index(server: Server, collection: str) -> None:
    """Index vectors, for exact search, and keys; and load the collection."""
    parameters = server.client.prepare_index_params()
    parameters.add_index("vector", index_type="FLAT", metric_type="IP")
    parameters.add_index("key")
    server.call("create_index", collection, parameters, sync=False)
    server.call("load_collection", collection)


def make_cells(server: Server, state: State, changes: Iterator[int]) -> State:
    """Index vectors for approximate search, as exact as is wanted.

    Whoever searches meanwhile looks into all cells, or waits while there are none. If it fails, it
    is tried again after the next change.
    """
    cells = wanted_cells(state)
    state = replace(state, cells=cells, probes=0, change=next(changes))
    server.commit(state)
    parameters = server.client.prepare_index_params()
    kind = {"index_type": "IVF_FLAT", "params": {"nlist": cells}}
    parameters.add_index("vector", metric_type="IP", **kind)
    server.call("flush", state.collection)
    server.call("release_collection", state.collection)
    if "vector" in server.call("list_indexes", state.collection):
        server.call("drop_index", state.collection, "vector")
    server.call("create_index", state.collection, parameters)
    server.call("load_collection", state.collection)
    state = replace(state, probes=_probes(server, state), change=next(changes))
    server.commit(state)
    return state


def _probes(server: Server, state: State) -> int:
    """Cells to look into for the wanted recall, asked for points halfway between items."""
    both = partitions(state.bound, state.bound.modalities)
    sample = server.call(
        "query",
        state.collection,
        filter=state.visible(),
        output_fields=["vector"],
        partition_names=both,
        limit=2 * _SAMPLE,
        consistency_level="Strong",
    )
    vectors = as_vectors(sample, state.bound.dim)
    ends = np.random.default_rng(0).integers(len(vectors), size=(2, _SAMPLE))
    queries = list(vectors[ends[0]] + vectors[ends[1]])

    def nearest(probes: int) -> list[set[int]]:
        found = server.call(
            "search",
            state.collection,
            data=queries,
            limit=10,
            output_fields=["row"],
            partition_names=both,
            search_params={"params": {"nprobe": probes}},
            consistency_level="Strong",
        )
        return [{hit["row"] for hit in hits} for hits in found]

    probes, true = 1, nearest(state.cells)
    while probes < state.cells:
        pairs = zip(nearest(probes), true, strict=True)
        if np.mean([len(a & b) / max(1, len(b)) for a, b in pairs]) >= RECALL:
            break
        probes = min(2 * probes, state.cells)
    return probes
