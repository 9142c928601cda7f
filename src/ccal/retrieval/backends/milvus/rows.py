"""Rows of an index in Milvus: their columns, and how items become rows and rows items."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccal.retrieval.answers import Facts
from ccal.retrieval.backends.base import Vectors
from ccal.retrieval.backends.milvus.facets import facets
from ccal.retrieval.backends.milvus.server import LIMIT, GoneError, Server
from ccal.retrieval.backends.milvus.state import State
from ccal.retrieval.items import Binding, Item

__all__ = [
    "FACTS",
    "GRAVES",
    "buried",
    "facts",
    "find",
    "make_collection",
    "make_row",
    "partitions",
]

FACTS = ("id", "modality", "metadata", "file")
GRAVES = "removed"
"""The partition of notes: `number` is the number of a row that a change removed."""

_TEXT = 65_535
_CHUNK = 8192


def make_collection(server: Server, name: str, dim: int) -> None:
    """An empty collection: a partition for each modality, and one for what was removed."""
    kinds = server.pymilvus.DataType
    schema = server.client.create_schema(auto_id=False, enable_dynamic_field=False)
    schema.add_field("row", kinds.INT64, is_primary=True)
    for column in ("born", "number"):
        schema.add_field(column, kinds.INT64)
    schema.add_field("key", kinds.VARCHAR, max_length=32)
    for column in ("id", "modality", "file"):
        schema.add_field(column, kinds.VARCHAR, max_length=_TEXT)
    for column in ("metadata", "facets"):
        schema.add_field(column, kinds.JSON)
    schema.add_field("vector", kinds.FLOAT_VECTOR, dim=dim)
    server.call("create_collection", name, schema=schema, num_shards=server.address.shards)
    for partition in ("items0", "items1", GRAVES):
        server.call("create_partition", name, partition)


def partitions(binding: Binding, modalities: Sequence[str]) -> list[str]:
    """Where items of these modalities are."""
    return [f"items{n}" for n, name in enumerate(binding.modalities) if name in modalities]


def make_row(row: int, born: int, number: int, item: Item, vector: NDArray[Any]) -> dict[str, Any]:
    """An item as Milvus keeps it; Milvus has no null in a text, so no file is no text."""
    return {
        "row": row,
        "born": born,
        "number": number,
        "key": _key(item.id),
        "id": item.id,
        "modality": item.modality,
        "file": item.file or "",
        "metadata": dict(item.metadata),
        "facets": facets(item.metadata),
        "vector": vector,
    }


def facts(row: Mapping[str, Any]) -> Facts:
    """What an item is made of, from a row with the columns FACTS."""
    return row["id"], row["modality"], row["metadata"], row["file"] or None


def buried(server: Server, state: State) -> set[int]:
    """Numbers of rows that are removed and still there."""
    if not state.buried:
        return set()
    change, rows = server.graves
    if change != state.change:
        notes = server.query(state, state.visible(), ["number"], [GRAVES])
        if len(notes) != state.buried:
            raise GoneError(f"{server.address.shown} is being tidied; try again.")
        rows = {int(note["number"]) for note in notes}
        server.graves = (state.change, rows)
    return rows


def find(
    server: Server, state: State, ids: Sequence[str], fields: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Rows by their ids, of those ids that exist."""
    found = {}
    gone = buried(server, state) if ids else set()
    both = partitions(state.bound, state.bound.modalities)
    for chunk in chunks(ids, _CHUNK):
        keys = ", ".join(f'"{_key(id)}"' for id in chunk)
        condition = f"key in [{keys}] and {state.visible()}"
        for row in server.query(state, condition, ["id", *fields], both):
            if int(row["row"]) not in gone:
                found[str(row["id"])] = row
    return {id: found[id] for id in ids if id in found}


def chunks(values: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    """Parts of a list, of at most so many."""
    for start in range(0, len(values), size):
        yield values[start : start + size]


def per_request(dim: int) -> int:
    """How many rows make a request of some megabytes."""
    return max(1, min(4096, LIMIT, (8 << 20) // (4 * dim + 1024)))


def as_vectors(rows: Sequence[Mapping[str, Any]], dim: int) -> Vectors:
    """Vectors (n, dim) of rows."""
    return np.array([row["vector"] for row in rows], np.float32).reshape(-1, dim)


def _key(id: str) -> str:
    """An id for conditions: short, and without anything to quote."""
    return hashlib.blake2b(id.encode(), digest_size=16).hexdigest()
