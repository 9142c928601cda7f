"""The bare libraries that `benchmarks.retrieval` compares with."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from torch import Tensor

from ccal.retrieval.backends.folder.candidates import CodesFile

DIM, K, BITS = 128, 10, 128


def metadata(number: int) -> dict[str, Any]:
    return {"name": f"photo {number}", "year": 1900 + number % 100}


def bare_sqlite(path: Path, vectors: Tensor) -> None:
    """The same rows in a SQLite table, in one durable transaction."""
    database = sqlite3.connect(path)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    columns = "row INTEGER PRIMARY KEY, id TEXT UNIQUE, metadata TEXT, vector BLOB"
    database.execute(f"CREATE TABLE items ({columns})")
    rows = (
        (n, f"image-{n}", json.dumps(metadata(n)), vector.tobytes())
        for n, vector in enumerate(vectors.numpy())
    )
    with database:
        database.executemany("INSERT INTO items VALUES (?, ?, ?, ?)", rows)
    database.close()


def bare_faiss(path: Path, vectors: Tensor) -> None:
    """The same cells, trained and filled, in a file."""
    count = len(vectors)
    cells = max(1, min(int(4 * count**0.5), count // 40))
    flat, kind = faiss.IndexFlatIP(DIM), faiss.ScalarQuantizer.QT_fp16
    index = faiss.IndexIVFScalarQuantizer(flat, DIM, cells, kind, faiss.METRIC_INNER_PRODUCT)
    index.cp.spherical, index.cp.max_points_per_centroid = True, 64
    index.train(vectors.numpy())
    index.add(vectors.numpy())
    faiss.write_index(index, str(path))


def bare_exact(queries: Tensor, vectors: Tensor) -> None:
    """Product and topk, of as many queries at a time as fit in half a gigabyte."""
    for part in queries.split(max(1, (1 << 27) // len(vectors))):
        (part @ vectors.T).topk(K)


def bare_cells(place: Path) -> Callable[[Tensor], object]:
    """The faiss index of an approximate one, asked directly."""
    (file,) = place.glob("*.faiss")
    index = faiss.read_index(str(file))
    return lambda queries: index.search(queries.numpy(), K)


def bare_codes(place: Path) -> Callable[[Tensor], object]:
    """The codes of an index, compared by faiss; only candidates come from that."""
    (path,) = place.glob("*.codes")
    file = CodesFile(path)
    index = faiss.IndexBinaryFlat(BITS)
    index.add(np.array(file.packed))
    return lambda queries: index.search(file.codes_of(queries.numpy()), file.rerank)
