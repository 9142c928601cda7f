"""Speed of `ccal.retrieval` against the bare libraries it stands on.

Search: through `Index.search_vectors` on an opened index, against a matrix product and `topk` of
the same vectors in memory. Build: against inserting the same rows into SQLite, which is the least
that a durable index takes. Variants take turns within one run. Run with
`python -m benchmarks.retrieval`, which also saves the table.
"""

from __future__ import annotations

import json
import sqlite3
import statistics
import tempfile
import time
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.timing import Row, medians, show
from ccal import DualEncoder
from ccal.encoders import DenseTower
from ccal.retrieval import Index

DIM, K, BATCH = 128, 10, 1000
SIZES = (10_000, 100_000)
OUTPUT = Path("benchmarks/retrieval.json")


def data(count: int) -> tuple[Tensor, Tensor]:
    """Unit vectors (count, DIM) and queries (BATCH, DIM)."""
    generator = torch.Generator().manual_seed(0)
    draws = torch.randn(count + BATCH, DIM, generator=generator)
    rows = functional.normalize(draws)
    return rows[:count], rows[count:]


def model() -> DualEncoder:
    image, text = DenseTower(DIM, DIM), DenseTower(DIM, DIM)
    return DualEncoder(dim=DIM, projection="none", image=image, text=text)


def build(folder: Path, vectors: Tensor, **options: object) -> Path:
    """An index of these vectors, closed."""
    with Index.build(folder, model(), vectors[:0], modality="image", **options) as index:  # type: ignore[arg-type]
        index.add_vectors("image", vectors)
    return folder


def bare_build(path: Path, vectors: Tensor) -> None:
    """The same rows in a SQLite table, in one durable transaction."""
    database = sqlite3.connect(path)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("CREATE TABLE items (row INTEGER PRIMARY KEY, id TEXT UNIQUE, vector BLOB)")
    rows = ((n, f"image-{n}", vector.tobytes()) for n, vector in enumerate(vectors.numpy()))
    with database:
        database.executemany("INSERT INTO items VALUES (?, ?, ?)", rows)
    database.close()


def seconds_of(run: object, *arguments: object) -> float:
    start = time.perf_counter()
    run(*arguments)  # type: ignore[operator]
    return time.perf_counter() - start


def build_row(count: int, folder: Path) -> Row:
    """Build and open, medians of three turns."""
    vectors, _ = data(count)
    ours, bare, opened = [], [], []
    for turn in range(3):
        ours.append(seconds_of(build, folder / f"i{turn}", vectors))
        bare.append(seconds_of(bare_build, folder / f"b{turn}", vectors))
        opened.append(seconds_of(lambda t=turn: Index.open(folder / f"i{t}").close()))
    times = [statistics.median(values) for values in (ours, bare, opened)]
    return {
        "vectors": count,
        "build_s": round(times[0], 3),
        "sqlite_s": round(times[1], 3),
        "build/sqlite": round(times[0] / times[1], 2),
        "open_ms": round(times[2] * 1e3, 2),
    }


def search_row(count: int, queries: int, dtype: str, folder: Path, seconds: float) -> Row:
    """One query, or a batch, against product and topk in memory, always in float32."""
    vectors, asked = data(count)
    given = asked[0] if queries == 1 else asked[:queries]
    place = build(folder / f"{count}-{queries}-{dtype}", vectors, dtype=dtype)
    with Index.open(place) as index:
        matrix = given.reshape(-1, DIM)
        times = medians(
            {
                "ours": lambda: index.search_vectors(given, k=K),
                "bare": lambda: (matrix @ vectors.T).topk(K),
            },
            seconds,
        )
    return {
        "vectors": count,
        "queries": queries,
        "stored": dtype,
        "ours_ms": round(times["ours"], 2),
        "bare_ms": round(times["bare"], 2),
        "ours/bare": round(times["ours"] / times["bare"], 2),
    }


def approximate_row(count: int, folder: Path, seconds: float) -> Row:
    """Approximate search by faiss against exact search, both through the index."""
    generator = torch.Generator().manual_seed(0)
    # Clustered, as embeddings are: without structure no cells could help.
    centres = torch.randn(200, DIM, generator=generator)
    noise = torch.randn(count + 100, DIM, generator=generator)
    draws = centres[torch.arange(count + 100) % 200] + 0.7 * noise
    vectors, queries = draws[:count], draws[count:]
    place = build(folder / "approximate", vectors, approximate_from=count)
    with Index.open(place) as index:
        near = index.search_vectors(queries, k=K)
        true = index.search_vectors(queries, k=K, exact=True)
        shares = [
            len({h.id for h in a} & {h.id for h in b}) / K for a, b in zip(near, true, strict=True)
        ]
        times = medians(
            {
                "approximate": lambda: index.search_vectors(queries[0], k=K),
                "exact": lambda: index.search_vectors(queries[0], k=K, exact=True),
            },
            seconds,
        )
    return {
        "vectors": count,
        "approximate_ms": round(times["approximate"], 2),
        "exact_ms": round(times["exact"], 2),
        "approximate/exact": round(times["approximate"] / times["exact"], 2),
        "recall": round(statistics.mean(shares), 4),
    }


def main(seconds: float = 3.0) -> dict[str, list[Row]]:
    """Run, print, and return the tables."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        builds = [build_row(count, Path(tempfile.mkdtemp(dir=folder))) for count in SIZES]
        show("Building and opening an index", builds)
        searches = [
            search_row(count, queries, dtype, folder, seconds)
            for count in SIZES
            for queries in (1, BATCH)
            for dtype in ("float32", "float16")
        ]
        show(f"Exact search, the {K} nearest, {DIM} dimensions", searches)
        tables = {"retrieval build": builds, "retrieval search": searches}
        if approximate_available():
            tables["retrieval approximate"] = [approximate_row(SIZES[-1], folder, seconds)]
            show("Approximate search", tables["retrieval approximate"])
    return tables


def approximate_available() -> bool:
    from ccal.retrieval.embedded import approximate

    return approximate.is_available()


if __name__ == "__main__":
    OUTPUT.write_text(json.dumps(main(), indent=1) + "\n")
    print(f"\nsaved as {OUTPUT}")
