"""Linear CCA against scikit-learn's, and against the bare products that any exact CCA needs.

    python -m benchmarks.linear_cca [--rows 1000000]

The second table writes rows x (512 + 512) float32 to a temporary folder: 4 GB for a million rows.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn import cross_decomposition

from benchmarks.timing import Row, medians, show
from ccal.cca.linear import CCA
from ccal.cca.views import chunk_size

DIM = 512
Array = NDArray[Any]


def against_scikit_learn(n: int = 2000, d: int = 64, k: int = 32) -> Row:
    """One fit of each; scikit-learn's CCA finds its components one by one, by power iteration."""
    rng = np.random.default_rng(0)
    shared = rng.normal(size=(n, d)) * np.linspace(2, 0.2, d)
    X = shared @ rng.normal(size=(d, d)) + rng.normal(size=(n, d))
    Y = shared @ rng.normal(size=(d, d)) + rng.normal(size=(n, d))
    theirs = cross_decomposition.CCA(k, max_iter=1000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.perf_counter()
        theirs.fit(X, Y)
        seconds = time.perf_counter() - start
        xs, ys = theirs.transform(X, Y)
    ours = CCA(k)
    ms = medians({"ours": lambda: ours.fit(X, Y)}, seconds=2)["ours"]
    found = [np.corrcoef(xs[:, i], ys[:, i])[0, 1] for i in range(k)]
    return {
        "samples": n,
        "features": f"{d} + {d}",
        "components": k,
        "scikit-learn ms": round(1e3 * seconds, 1),
        "ours ms": round(ms, 2),
        "times faster": round(1e3 * seconds / ms),
        "sum of correlations, theirs": round(float(np.sum(found)), 4),
        "ours": round(float(ours.correlations_.sum()), 4),
    }


def write_maps(folder: Path, rows: int) -> tuple[Array, Array]:
    """Two views of `rows` samples on disk, opened as memory maps."""
    rng = np.random.default_rng(0)
    for name in "xy":
        out = np.lib.format.open_memmap(
            folder / f"{name}.npy", mode="w+", dtype=np.float32, shape=(rows, DIM)
        )
        for i in range(0, rows, 1 << 16):
            out[i : i + (1 << 16)] = rng.standard_normal(
                (min(1 << 16, rows - i), DIM), dtype=np.float32
            )
        out.flush()
    X, Y = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in "xy")
    return X, Y


def bare_products(X: Array, Y: Array, library: str) -> None:
    """Read, cast to float64 and multiply chunks, and nothing else."""
    size = chunk_size(2 * DIM)
    for i in range(0, len(X), size):
        x, y = (np.asarray(v[i : i + size], np.float64) for v in (X, Y))
        if library == "torch":
            a, b = torch.from_numpy(x), torch.from_numpy(y)
            _ = a.mT @ a, b.mT @ b, a.mT @ b
        else:
            _ = x.T @ x, y.T @ y, x.T @ y


def timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def against_bare_products(rows: int = 1_000_000, turns: int = 2) -> Row:
    """The whole fit against its products alone, taking turns; best of `turns`."""
    with tempfile.TemporaryDirectory() as folder:
        X, Y = write_maps(Path(folder), rows)
        variants: dict[str, Callable[[], object]] = {
            "NumPy": lambda: bare_products(X, Y, "numpy"),
            "torch": lambda: bare_products(X, Y, "torch"),
            "fit": lambda: CCA.for_retrieval(64).fit(X, Y),
        }
        best = dict.fromkeys(variants, float("inf"))
        for _ in range(turns):
            for name, run in variants.items():
                best[name] = min(best[name], timed(run))
    return {
        "samples": f"{rows:,}",
        "features": f"{DIM} + {DIM}",
        "bare products, NumPy s": round(best["NumPy"], 2),
        "bare products, torch s": round(best["torch"], 2),
        "CCA.fit s": round(best["fit"], 2),
        "over NumPy": round(best["fit"] / best["NumPy"], 2),
        "over torch": round(best["fit"] / best["torch"], 2),
        "samples/s": round(rows / best["fit"]),
    }


def rows(samples: int = 1_000_000) -> list[Row]:
    """One row for each of the two comparisons."""
    return [against_scikit_learn(), against_bare_products(samples)]


def main(arguments: Sequence[str] = ()) -> dict[str, list[Row]]:
    """Run, print, and return the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="samples of the memory map")
    samples = parser.parse_args(arguments).rows
    peer, limit = rows(samples)
    show("Linear CCA against scikit-learn's", [peer])
    show("Linear CCA of a memory map against its bare float64 products", [limit])
    return {"linear CCA, scikit-learn": [peer], "linear CCA, memory map": [limit]}


if __name__ == "__main__":
    main(sys.argv[1:])
