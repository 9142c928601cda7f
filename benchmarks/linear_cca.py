"""Linear CCA against scikit-learn's, against the bare products that any exact CCA needs, and the
search for a ridge against one fit.

    python -m benchmarks.linear_cca [--rows 1000000] [--only-search] [--flickr8k FOLDER]

The second table writes rows x (512 + 512) float32 to a temporary folder: 4 GB for a million rows.
The search is on drawn features, or on the 6,000 training pairs of Flickr8k in FOLDER
(pairs.jsonl, image_features.npy), texts as TF-IDF.
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
from ccal.cca import selection
from ccal.cca.linear import CCA
from ccal.cca.views import chunk_size
from ccal.data import read_table
from ccal.training import Settings
from ccal.training.batches import PairFeatures
from ccal.training.front_ends import make_front_ends

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


def drawn_pairs(n: int = 6000, dims: tuple[int, int] = (1280, 2009)) -> tuple[Array, Array]:
    """Two noisy views of 300 shared factors."""
    rng = np.random.default_rng(0)
    shared = rng.normal(size=(n, 300)) / np.sqrt(1 + np.arange(300))
    X, Y = (
        (shared @ rng.normal(size=(300, d)) + rng.normal(size=(n, d))).astype(np.float32)
        for d in dims
    )
    return X, Y


def flickr8k_pairs(folder: Path) -> tuple[Array, Array]:
    """Image features and TF-IDF of the five captions of each official training photo."""
    features = np.load(folder / "image_features.npy")
    views = {"image": features, "text": "captions"}
    table = read_table(folder / "pairs.jsonl", views, split="split", captions="concatenate")
    assert table.split is not None
    pairs = table.pairs[np.flatnonzero(table.split == "train")]
    front_ends = make_front_ends(Settings(text="tfidf"), pairs)
    return PairFeatures(pairs, front_ends, fit=True).arrays()


def search_against_fit(X: Array, Y: Array, k: int = 256, turns: int = 2) -> Row:
    """Ridge and power chosen on held-out pairs against one fit with given ones, taking turns.

    Processor seconds, the best of `turns`. *exact* is the best MRR of a search in float64; *found*
    is what the search in float32 chose, scored in float64.
    """
    fixed, search = CCA.for_retrieval(k), CCA(k, ridge="auto", power="auto")
    best = {"fit": float("inf"), "search": float("inf")}
    for _ in range(turns):
        for name, cca in (("fit", fixed), ("search", search)):
            start = time.process_time()
            cca.fit(X, Y)
            best[name] = min(best[name], time.process_time() - start)
    chosen: Any = max(search.search_, key=_mrr)
    limit, selection._EXACT_UP_TO = selection._EXACT_UP_TO, max(X.shape[1], Y.shape[1])
    exact: Any = max(CCA(k, ridge="auto", power="auto").fit(X, Y).search_, key=_mrr)
    again = CCA(k, ridge=chosen["ridge"], power="auto").fit(X, Y)
    selection._EXACT_UP_TO = limit
    (found,) = (trial for trial in again.search_ if trial["power"] == chosen["power"])
    return {
        "samples": f"{len(X):,}",
        "features": f"{X.shape[1]} + {Y.shape[1]}",
        "components": k,
        "fit s": round(best["fit"], 2),
        "search and fit s": round(best["search"], 2),
        "ratio": round(best["search"] / best["fit"], 2),
        "ridges": len({trial["ridge"] for trial in search.search_}),
        "ridge and power, exact": _setting(exact),
        "found": _setting(chosen),
        "MRR exact": round(100 * _mrr(exact), 2),
        "MRR found": round(100 * _mrr(found), 2),
    }


def _mrr(trial: dict[str, Any]) -> float:
    return float(trial["mrr"])


def _setting(trial: dict[str, Any]) -> str:
    x, y = trial["ridge"]
    return f"{x:.3g}, {y:.3g}; {trial['power']:g}"


def main(arguments: Sequence[str] = ()) -> dict[str, list[Row]]:
    """Run, print, and return the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="samples of the memory map")
    parser.add_argument("--only-search", action="store_true", help="the last table alone")
    parser.add_argument("--flickr8k", type=Path, help="folder of the pairs of the last table")
    parsed = parser.parse_args(arguments)
    found: dict[str, list[Row]] = {}
    if not parsed.only_search:
        found["linear CCA, scikit-learn"] = [against_scikit_learn()]
        found["linear CCA, memory map"] = [against_bare_products(parsed.rows)]
    views = drawn_pairs() if parsed.flickr8k is None else flickr8k_pairs(parsed.flickr8k)
    found["linear CCA, search of the ridge"] = [search_against_fit(*views)]
    for title, table in found.items():
        show(title, table)
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
