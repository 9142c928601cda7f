"""Zero-shot retrieval on CUB: pictures of bird classes that no training pair showed.

    python -m benchmarks.cub FOLDER --splits 0,1,2

FOLDER holds pairs.jsonl (file, class, captions) and image_features.npy. Of the 150 classes a split
takes 100 for training, 25 to choose on and 25 for the test, by its number as the seed. Finished
runs are kept in benchmarks/cub.json, with hashes of data and split, and not repeated unless --again
says so. Without FOLDER the table is shown. The paper's networks are those of `ccal reproduce cub`.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.hashes import hash_of
from ccal.data import Pairs, Split, disjoint_split, read_table
from ccal.evaluation import ClassReport
from ccal.training import ZeroShotOptions, train_zero_shot

RESULTS = Path(__file__).with_name("cub.json")

# Linear methods, with what may be chosen on the validation classes: plain CCA, with dimension and
# weighting chosen too, with neighbours, with pairs of words; ours with single words and with pairs,
# each without and with neighbours.
LINEAR = {
    "linear": ZeroShotOptions.classic(),
    "linear-tuned": ZeroShotOptions.classic(dims=(32, 64, 96), powers=(0.0, 1.0, 2.0)),
    "linear-neighbours": ZeroShotOptions.classic(neighbours=(10, 20, 30, 40)),
    "linear-pairs": ZeroShotOptions.classic(pair_count=100),
    "words-single": ZeroShotOptions(neighbours=(1,), pair_count=0),
    "words": ZeroShotOptions(pair_count=0),
    "ours-single": ZeroShotOptions(neighbours=(1,)),
    "ours": ZeroShotOptions(),
}


def as_numbers(report: ClassReport) -> dict[str, Any]:
    """What is kept of a report: the numbers, the precision of each class, what was confused."""
    content = report.as_dict()
    return {
        **{n: round(content[n], 2) for n in ("ap", "ap_single", "accuracy", "accuracy_5")},
        "precision": {label: round(p, 1) for label, p in content["precision"].items()},
        "confused": [[*pair, round(share, 1)] for *pair, share in content["confused"]],
    }


def read_cub(folder: Path) -> tuple[Pairs, str]:
    """All pairs of a picture and one of its captions, and a hash of the data."""
    features = np.load(folder / "image_features.npy")
    source = folder / "pairs.jsonl"
    pairs = read_table(source, {"image": features, "text": "captions"}, label="class").pairs
    return pairs, hash_of(source.read_bytes(), features.tobytes())


def split_of(pairs: Pairs, number: int) -> Split:
    """100 classes for training, 25 to choose on, 25 for the test."""
    assert pairs.label is not None
    return disjoint_split(pairs.label, valid=25, test=25, seed=number)


def table(found: dict[str, Any]) -> str:
    """Markdown: the mean over the splits of each method, and how far single splits lie apart."""
    lines = [
        "| method | AP@50, class | AP@50, one caption | class of a picture @1 | @5 | splits |",
        "| --- " * 6 + "|",
    ]
    for name in LINEAR:
        runs = [run["test"] for key, run in found.items() if key.split()[0] == name]
        if not runs:
            continue
        ap, *others = (
            np.array([run[measure] for run in runs])
            for measure in ("ap", "ap_single", "accuracy", "accuracy_5")
        )
        spread = f" ({ap.min():.1f} to {ap.max():.1f})" if len(runs) > 1 else ""
        cells = [f"{ap.mean():.1f}{spread}", *(f"{values.mean():.1f}" for values in others)]
        lines.append("| " + " | ".join([name, *cells, str(len(runs))]) + " |")
    return "\n".join(lines)


def split_hash(pairs: Pairs, split: Split) -> str:
    assert pairs.label is not None
    parts = [sorted(set(pairs.label[rows])) for rows in (split.train, split.valid, split.test)]
    return hash_of(json.dumps(parts).encode())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--methods", default=",".join(LINEAR))
    parser.add_argument("--splits", default="0")
    parser.add_argument("--again", action="store_true")
    arguments = parser.parse_args()
    if arguments.folder is None:
        print(table(json.loads(RESULTS.read_text())))
        return
    pairs, data = read_cub(arguments.folder)
    for number in map(int, arguments.splits.split(",")):
        split = split_of(pairs, number)
        training, valid, test = split.of(pairs)
        for name in arguments.methods.split(","):
            key = f"{name} split {number}"
            found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
            if key in found and not arguments.again:
                continue
            started = time.perf_counter()
            found_model = train_zero_shot(training, valid, LINEAR[name])
            result: dict[str, Any] = {
                "data": data,
                "split": split_hash(pairs, split),
                "test": as_numbers(found_model.evaluate(test)),
                "facts": found_model.facts,
                "seconds": round(time.perf_counter() - started),
                "threads": torch.get_num_threads(),
            }
            # Another process may have finished a method meanwhile.
            found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
            RESULTS.write_text(json.dumps({**found, key: result}, indent=1) + "\n")
            print(f"{key}: AP@50 {result['test']['ap']}", flush=True)


if __name__ == "__main__":
    main()
