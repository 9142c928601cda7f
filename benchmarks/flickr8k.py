"""Retrieval on Flickr8k: linear CCA and the default, all training pairs and a quarter of them.

    python -m benchmarks.flickr8k FOLDER --methods linear,default --seeds 0,1,2 --sizes 6000,1500

FOLDER holds pairs.jsonl (file, split, captions) and image_features.npy. The dev split is the test
set; validation pairs are a tenth of the training pairs, drawn by the seed, as is the subset of a
smaller size. Finished runs are kept in benchmarks/flickr8k.json and not repeated; without FOLDER
they are shown as a table, and drawn with `--figures docs/results`. The paper's networks are those
of `ccal reproduce flickr8k`.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.hashes import hash_of
from ccal.data import Pairs, Table, random_split, read_table
from ccal.evaluation import Direction, Measures, Report
from ccal.model import DualEncoder
from ccal.reports import comparison_plot
from ccal.training import Settings, evaluate, train

RESULTS = Path(__file__).with_name("flickr8k.json")

METHODS: dict[str, dict[str, Any]] = {
    "linear": {"method": "linear", "text": "tfidf"},
    "linear-joined": {"method": "linear"},
    "fast": {"tower": "none"},
    "default": {},
    "default-captions": {},
}
"""Texts are TF-IDF joined with sentence embeddings unless a method says otherwise, and the five
captions of a photo are one text; "default-captions" trains on each caption as a pair."""

CAPTIONS = 5


def rows_of(table: Table, size: int, seed: int) -> list[NDArray[np.int64]]:
    """Rows for training, validation (a tenth of `size` official training rows) and test."""
    assert table.split is not None
    rows = np.flatnonzero(table.split == "train")
    if size < len(rows):
        rows = rows[random_split(len(rows), valid=0, test=size, seed=seed).test]
    split = random_split(len(rows), valid=0.1, test=0, seed=seed)
    return [rows[split.train], rows[split.valid], np.flatnonzero(table.split == "valid")]


def of_captions(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The pairs of one caption each, of some photos."""
    return (CAPTIONS * rows[:, None] + np.arange(CAPTIONS)).ravel()


def single_captions(model: DualEncoder, captions: Pairs, rows: NDArray[np.int64]) -> dict[str, Any]:
    """Measures of single captions: the first of each photo, the second, ...; the mean of these."""
    found = [
        evaluate(model, captions[CAPTIONS * rows + place], bootstrap=0) for place in range(CAPTIONS)
    ]
    ways = {
        "image -> text": [report.x_to_y.measures.as_dict() for report in found],
        "text -> image": [report.y_to_x.measures.as_dict() for report in found],
    }
    return {
        way: {name: float(np.mean([one[name] for one in each])) for name in each[0]}
        for way, each in ways.items()
    }


def table(found: dict[str, Any]) -> str:
    """Means over seeds, and the spread of MRR over them, as Markdown."""
    measures = "MRR | R@1 | R@10"
    lines = [
        f"| pairs | method | image -> text: {measures} | text -> image: {measures} | seeds |",
        "| --- " * 9 + "|",
    ]
    runs: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for key, run in found.items():
        name, pairs, _ = key.split()
        runs.setdefault((int(pairs), name), []).append(run)
    order = list(METHODS)
    for (size, name), group in sorted(runs.items(), key=lambda r: (-r[0][0], order.index(r[0][1]))):
        cells = [f"{size:,}", name]
        for way in ("image -> text", "text -> image"):
            mrr, r1, r10 = (np.array([run[way][m] for run in group]) for m in ("mrr", "r1", "r10"))
            spread = f" ± {mrr.std(ddof=1):.1f}" if len(group) > 1 else ""
            cells += [f"{mrr.mean():.1f}{spread}", f"{r1.mean():.1f}", f"{r10.mean():.1f}"]
        lines.append("| " + " | ".join([*cells, str(len(group))]) + " |")
    return "\n".join(lines)


def figures(found: dict[str, Any], folder: Path) -> None:
    """One plot of all methods for each number of pairs: flickr8k-PAIRS.svg."""
    by_size: dict[str, dict[str, list[Report]]] = {}
    for key in sorted(found, key=lambda key: list(METHODS).index(key.split()[0])):
        name, size, _ = key.split()
        forth, back = (
            Direction(way, 1000, Measures(**found[key][way]), None, None, torch.empty(0).long())
            for way in ("image -> text", "text -> image")
        )
        report = Report(forth, back, "optimistic", 0)
        by_size.setdefault(size, {}).setdefault(name, []).append(report)
    for size, reports in by_size.items():
        comparison_plot(reports).savefig(folder / f"flickr8k-{size}.svg", metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--methods", default="linear,default")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--sizes", default="6000,1500")
    parser.add_argument("--figures", type=Path)
    arguments = parser.parse_args()
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if arguments.folder is None:
        print(table(found))
        if arguments.figures is not None:
            figures(found, arguments.figures)
        return
    features = np.load(arguments.folder / "image_features.npy")
    source = arguments.folder / "pairs.jsonl"
    pairs = read_table(
        source, {"image": features, "text": "captions"}, split="split", captions="concatenate"
    )
    captions = read_table(source, {"image": features, "text": "captions"}).pairs
    assert len(captions) == CAPTIONS * len(pairs.pairs)
    data = hash_of(source.read_bytes(), features.tobytes())
    for size in map(int, arguments.sizes.split(",")):
        for name in arguments.methods.split(","):
            for seed in map(int, arguments.seeds.split(",")):
                key = f"{name} {size} {seed}"
                if key in found:
                    continue
                rows = rows_of(pairs, size, seed)
                training, valid, test = (pairs.pairs[part] for part in rows)
                if name == "default-captions":
                    training, valid = (captions[of_captions(part)] for part in rows[:2])
                started, busy = time.perf_counter(), time.process_time()
                trained = train(Settings(**METHODS[name], seed=seed), training, valid)
                took = time.perf_counter() - started, time.process_time() - busy
                report = evaluate(trained.model, test, bootstrap=0)
                found[key] = {
                    "data": data,
                    "split": hash_of(*(part.tobytes() for part in rows)),
                    "image -> text": report.x_to_y.measures.as_dict(),
                    "text -> image": report.y_to_x.measures.as_dict(),
                    "single captions": single_captions(trained.model, captions, rows[2]),
                    "facts": trained.facts,
                    "epochs": len(trained.history),
                    "seconds": round(took[0]),
                    "processor seconds": round(took[1]),
                    "threads": torch.get_num_threads(),
                }
                # Another process may have finished a run meanwhile.
                kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
                found = {**kept, key: found[key]}
                RESULTS.write_text(json.dumps(found, indent=1) + "\n")
                forward, backward = report.x_to_y.measures.mrr, report.y_to_x.measures.mrr
                print(f"{key}: MRR {forward:.1f} / {backward:.1f}", flush=True)


if __name__ == "__main__":
    main()
