"""Speed of `ccal.retrieval` against the bare libraries it stands on, and the memory it takes.

Search: through `Index.search_vectors` on an opened index, one query or a batch of 1000. "ours" is
the call, which leaves scores and positions in their order; "read" is the call, and id, score and
metadata of every hit looked at. Exact search against a matrix product and `topk` of the same
vectors in memory; approximate search against the same faiss index, asked directly; search by binary
codes against faiss comparing the same codes, which only gives candidates. Build: against
inserting the same rows into SQLite, and training and filling the same faiss index, which is the
least that a durable index takes. Variants take turns within one run, with one thread
(OMP_NUM_THREADS=1). Run with

    python -m benchmarks.retrieval [--sizes 10000 100000 1000000] [--seconds 3]

which also saves the tables; sizes that are not run again stay.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.retrieval_bare import (
    BITS,
    DIM,
    K,
    bare_cells,
    bare_codes,
    bare_exact,
    bare_faiss,
    bare_sqlite,
    metadata,
)
from benchmarks.timing import Row, show
from ccal import DualEncoder
from ccal.encoders import DenseTower
from ccal.retrieval import Hit, Index

BATCH = 1000
SIZES = (10_000, 100_000, 1_000_000)
OUTPUT = Path("benchmarks/retrieval.json")
TITLES = {
    "retrieval build": "Building and opening an index",
    "retrieval search": f"Search for the {K} nearest, {DIM} dimensions, against the bare library",
    "retrieval memory": "Memory of a process that has searched once, MB",
}

_MEMORY = """
import sys, torch
from ccal.retrieval import Index
def memory():
    lines = (line.split() for line in open("/proc/self/status"))
    return [int(line[1]) // 1024 for line in lines if line and line[0] in ("RssAnon:", "RssFile:")]
before = memory()
if sys.argv[1]:
    with Index.open(sys.argv[1]) as index:
        index.search_vectors(torch.ones(index.binding.dim), exact=sys.argv[2] == "exact")
        after = memory()
        print(after[0] - before[0], after[1] - before[1])
"""


def data(count: int) -> tuple[Tensor, Tensor]:
    """Unit vectors (count, DIM) in clusters, as embeddings are, and queries (BATCH, DIM)."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(200, DIM, generator=generator)
    rows = torch.randn(count + BATCH, DIM, generator=generator).mul_(0.7)
    rows += centres[torch.arange(count + BATCH) % 200]
    functional.normalize(rows, out=rows)
    return rows[:count], rows[count:]


def model() -> DualEncoder:
    image, text = DenseTower(DIM, DIM), DenseTower(DIM, DIM)
    return DualEncoder(dim=DIM, projection="none", image=image, text=text)


def build(folder: Path, vectors: Tensor, **options: Any) -> Path:
    """An index of these vectors, closed."""
    facts = [metadata(n) for n in range(len(vectors))]
    with Index.build(folder, model(), vectors[:0], modality="image", **options) as index:
        index.add_vectors("image", vectors, metadata=facts)
    return folder


def seconds_of(run: Callable[..., object], *arguments: object, **options: object) -> float:
    start = time.perf_counter()
    run(*arguments, **options)
    return time.perf_counter() - start


def build_row(count: int, vectors: Tensor, folder: Path) -> tuple[Row, Path, Path]:
    """Build and open, medians of three turns, of one from 100,000 on; both indexes."""
    times: dict[str, list[float]] = {name: [] for name in ("exact", "ann", "sqlite", "faiss")}
    opened = []
    for turn in range(1 if count > 50_000 else 3):
        place = folder / str(turn)
        place.mkdir()
        far = {"approximate_from": 10 * count}
        times["exact"].append(seconds_of(build, place / "exact", vectors, **far))
        times["sqlite"].append(seconds_of(bare_sqlite, place / "sqlite", vectors))
        near = {"approximate_from": count}
        times["ann"].append(seconds_of(build, place / "ann", vectors, **near))
        times["faiss"].append(seconds_of(bare_faiss, place / "faiss", vectors))
        opened.append(seconds_of(lambda p=place: Index.open(p / "exact").close()))
    found = {name: statistics.median(values) for name, values in times.items()}
    row: Row = {
        "vectors": count,
        "exact_s": round(found["exact"], 3),
        "sqlite_s": round(found["sqlite"], 3),
        "exact/sqlite": round(found["exact"] / found["sqlite"], 2),
        "approximate_s": round(found["ann"], 3),
        "faiss_s": round(found["faiss"], 3),
        "approximate/both": round(found["ann"] / (found["sqlite"] + found["faiss"]), 2),
        "open_ms": round(statistics.median(opened) * 1e3, 2),
    }
    return row, place / "exact", place / "ann"


def read(answers: Any) -> int:
    """Look at id, score and metadata of every hit, of one query or of a batch."""
    several = [answers] if isinstance(answers[0], Hit) else answers
    return sum(bool(hit.id and hit.score and hit.metadata) for hits in several for hit in hits)


def compare(ours: Callable[[], object], bare: Callable[[], object], seconds: float) -> Row:
    """Medians of turns, five at least, of three where one takes seconds; in processor time.

    On a shared machine whoever takes longer than a time slice waits for others, and would seem
    many times slower; with one thread, processor time does not count that.
    """
    variants = {"ours": ours, "read": lambda: read(ours()), "bare": bare}
    for run in variants.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in variants}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times["ours"]) < 5:
        for name, run in variants.items():
            start = time.process_time()
            run()
            times[name].append((time.process_time() - start) * 1e3)
        if times["bare"][0] > 1e3 and len(times["bare"]) == 3:
            break
    found = {name: statistics.median(values) for name, values in times.items()}
    row: Row = {f"{name}_ms": round(value, 3) for name, value in found.items()}
    ratios = {f"{name}/bare": round(found[name] / found["bare"], 2) for name in ("ours", "read")}
    return row | ratios


def exact_rows(
    place: Path, vectors: Tensor, asked: Tensor, dtype: str, seconds: float
) -> list[Row]:
    """One query, and a batch, against product and topk in memory, always in float32."""
    rows: list[Row] = []
    with Index.open(place) as index:
        for queries in (1, BATCH):
            given = asked[0] if queries == 1 else asked
            matrix = asked[:queries]
            times = compare(
                lambda given=given: index.search_vectors(given, k=K, exact=True),  # type: ignore[misc]
                lambda matrix=matrix: bare_exact(matrix, vectors),  # type: ignore[misc]
                seconds,
            )
            rows.append({"vectors": len(vectors), "search": f"exact {dtype}", "queries": queries})
            rows[-1] |= {**times, "recall": 1.0}
    return rows


def approximate_rows(
    place: Path,
    name: str,
    bare: Callable[[Tensor], object],
    count: int,
    asked: Tensor,
    seconds: float,
) -> list[Row]:
    """The same for approximate search; recall against exact search."""
    rows: list[Row] = []
    with Index.open(place) as index:
        near, true = (index.search_vectors(asked[:200], k=K, exact=e) for e in (False, True))
        pairs = zip(near, true, strict=True)
        recall = np.mean([len({h.id for h in a} & {h.id for h in b}) / K for a, b in pairs])
        for queries in (1, BATCH):
            given = asked[0] if queries == 1 else asked
            matrix = asked[:queries]
            times = compare(
                lambda given=given: index.search_vectors(given, k=K),  # type: ignore[misc]
                lambda matrix=matrix: bare(matrix),  # type: ignore[misc]
                seconds,
            )
            rows.append({"vectors": count, "search": name, "queries": queries})
            rows[-1] |= {**times, "recall": round(float(recall), 4)}
    return rows


def memory_row(count: int, places: dict[str, Path]) -> Row:
    """What opening and one search add to a process: its own memory, and pages of mapped files."""
    row: Row = {"vectors": count, "vectors_mb": round(count * DIM * 4 / 2**20)}
    for name, place in places.items():
        command = [sys.executable, "-c", _MEMORY, str(place), name]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        row[f"{name}_own"], row[f"{name}_mapped"] = map(int, done.stdout.split())
    for name, place in places.items():
        row[f"{name}_on_disk"] = round(sum(p.stat().st_size for p in place.iterdir()) / 2**20)
    return row


def measure(count: int, seconds: float) -> dict[str, list[Row]]:
    """All tables for one size."""
    vectors, asked = data(count)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        built, exact, approximate = build_row(count, vectors, folder)
        searches = exact_rows(exact, vectors, asked, "float32", seconds)
        bare = bare_cells(approximate)
        searches += approximate_rows(approximate, "approximate", bare, count, asked, seconds)
        places = {"exact": exact, "approximate": approximate}
        if count < 500_000:
            far = {"approximate_from": 10 * count}
            half = build(folder / "half", vectors, dtype="float16", **far)
            searches += exact_rows(half, vectors, asked, "float16", seconds)
            near: dict[str, Any] = {"approximate_from": count, "codes": BITS}
            places["codes"] = coded = build(folder / "codes", vectors, **near)
            name, bare = f"{BITS} bits", bare_codes(coded)
            searches += approximate_rows(coded, name, bare, count, asked, seconds)
        memory = memory_row(count, places)
    return dict(zip(TITLES, ([built], searches, [memory]), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description="An index against the bare libraries.")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--seconds", type=float, default=3.0)
    arguments = parser.parse_args()
    results: dict[str, list[Row]] = {}
    if OUTPUT.exists():
        results = {name: json.loads(OUTPUT.read_text()).get(name, []) for name in TITLES}
    for count in arguments.sizes:
        for name, rows in measure(count, arguments.seconds).items():
            kept = [row for row in results.get(name, []) if row["vectors"] != count]
            results[name] = sorted([*kept, *rows], key=lambda row: int(str(row["vectors"])))
            show(TITLES[name], rows)
        OUTPUT.write_text(json.dumps(results, indent=1) + "\n")
    print(f"\nsaved as {OUTPUT}")


if __name__ == "__main__":
    main()
