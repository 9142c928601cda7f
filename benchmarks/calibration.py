"""Are the chances of hits true? Photos and captions that training has not seen, among few and many.

    python -m benchmarks.calibration FOLDER --pairs 1500 --captions joined

FOLDER holds pairs.jsonl (file, captions, perhaps split) and image_features.npy, as Flickr8k and CUB
do. The default method trains on `--pairs` pairs drawn by the seed, a tenth of them for validation.
1,000 other photos and their texts are the test: the dev split, or drawn as well. They look for each
other among 200, among 1,000, and among all photos or texts that training has not seen. The table
says, for the first 10 hits of each query: how often those called strong, fair and weak are right,
the mean chance and the share of right ones among the best hits, the expected calibration error
(ECE: mean distance of chance and share right, over tenths of the chance), and the Brier score of
the best hits beside that of their mean.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ccal.data import Pairs
from ccal.evaluation.calibration import HEAD, Calibration
from ccal.ranks import unit_rows
from ccal.training import Settings, train

TEST = 1000
WORDS = ("strong", "fair", "weak")


def measure(calibration: Calibration, scores: list[Tensor]) -> list[str]:
    """Cells of a row, for blocks of scores in which query i belongs to item i."""
    chances, rights, words = [], [], []
    for block in scores:
        best = block.topk(HEAD)
        for query, (values, items) in enumerate(zip(*best, strict=True)):
            judged = calibration.judged(values.tolist(), block.shape[1])
            chances.append([chance for chance, _ in judged])
            words.append([WORDS.index(word) for _, word in judged])
            rights.append((items == query).tolist())
    chance, right, word = np.array(chances), np.array(rights), np.array(words)
    cells = []
    for number in range(len(WORDS)):
        here = word == number
        cells.append(f"{100 * right[here].mean():.0f}% of {here.sum():,}" if here.any() else "none")
    first = np.bincount(word[:, 0], minlength=3) / len(word)
    cells.append(" / ".join(f"{100 * share:.0f}" for share in first))
    cells.append(f"{chance[:, 0].mean():.3f} / {right[:, 0].mean():.3f}")
    tenth = (chance * 10).astype(int).clip(0, 9)
    gaps = [
        (tenth == n).sum() * abs(chance[tenth == n].mean() - right[tenth == n].mean())
        for n in np.unique(tenth)
    ]
    cells.append(f"{sum(gaps) / chance.size:.3f}")
    mean = right[:, 0].mean()
    brier = np.square(chance[:, 0] - right[:, 0]).mean()
    return [*cells, f"{brier:.3f} ({mean * (1 - mean):.3f})"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pairs", type=int, default=1500)
    parser.add_argument("--captions", choices=("joined", "first"), default="joined")
    parser.add_argument("--method", default="refined")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    lines = (given.folder / "pairs.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    photos = np.load(given.folder / "image_features.npy").astype(np.float32)
    split = np.array([record.get("split", "train") for record in records])
    order = np.random.default_rng(given.seed).permutation(len(records))
    test = order[split[order] != "train"][:TEST] if (split != "train").any() else order[:TEST]
    others = np.setdiff1d(order, test)
    others = others[split[others] == "train"]
    others = np.random.default_rng(given.seed).permutation(others)
    seen, unseen, valid = others[: given.pairs], others[given.pairs :], given.pairs // 10

    def text(row: int) -> str:
        captions = records[row]["captions"]
        return str(captions[0] if given.captions == "first" else " ".join(captions))

    def pairs(rows: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> Pairs:
        return Pairs({"image": photos[rows], "text": [text(row) for row in rows]})

    settings = Settings(method=given.method, text="tfidf", seed=given.seed)
    model = train(settings, pairs(seen[valid:]), pairs(seen[:valid]), progress=False).model
    shown = pairs(np.concatenate((test, unseen)))
    embedded = {
        name: unit_rows(model.encode(name, shown.column(name)), name) for name in shown.names
    }
    print("| queries | items | strong | fair | weak | best hits: strong / fair / weak, % ", end="")
    print("| best hits: mean chance / right | ECE | Brier (of the mean) |")
    print("| --- " * 9 + "|")
    for asked, found in (("image", "text"), ("text", "image")):
        scores = embedded[asked][:TEST] @ embedded[found].mT
        few = [scores[n : n + 200, n : n + 200] for n in range(0, TEST, 200)]
        for blocks in (few, [scores[:, :TEST]], [scores]):
            cells = measure(model.calibrations[asked], blocks)
            print(f"| {asked} | {blocks[0].shape[1]:,} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
