"""A look at zero-shot retrieval on CUB: which classes are confused, and what some queries find.

    python -m benchmarks.cub_views FOLDER docs/results

Fits the model that `benchmarks.cub` chose for the first split, draws its confusion of the test
classes as zero-shot-confusion.svg and writes examples to zero-shot-examples.md.
"""

from __future__ import annotations

import argparse
import json
from html import escape
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.cub import RESULTS, read_cub, split_hash, split_of
from ccal.data import Pairs
from ccal.evaluation import ClassReport, class_means
from ccal.training import ZeroShot, ZeroShotOptions, train_zero_shot

CELL, MARGIN = 16, 170


def name(label: str) -> str:
    """007.Parakeet_Auklet -> Parakeet Auklet."""
    return label.split(".")[-1].replace("_", " ")


def confusion_svg(report: ClassReport, names: list[str]) -> str:
    """Rows are true classes, columns what their pictures are taken for; darker is more."""
    size = MARGIN + CELL * len(names) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{size}" height="{size}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for i, label in enumerate(map(escape, names)):
        place = MARGIN + i * CELL
        middle = place + CELL - 4
        parts.append(f'<text x="{MARGIN - 6}" y="{middle}" text-anchor="end">{label}</text>')
        turned = f'transform="translate({middle} {MARGIN - 6}) rotate(-90)"'
        parts.append(f"<text {turned}>{label}</text>")
        for j, share in enumerate(report.confusion[i].tolist()):
            if share:
                colour = "#08519c" if i == j else "#a50f15"
                parts.append(
                    f'<rect x="{MARGIN + j * CELL}" y="{place}" width="{CELL - 1}" '
                    f'height="{CELL - 1}" fill="{colour}" fill-opacity="{share / 100:.2f}">'
                    f"<title>{label} as {escape(names[j])}: {share:.0f}%</title></rect>"
                )
    return "\n".join([*parts, "</svg>\n"])


def examples(found: ZeroShot, test: Pairs, report: ClassReport, names: list[str]) -> str:
    """Markdown: what classes of high, middle and low precision find, and what captions find."""
    assert test.label is not None
    assert test.group is not None
    first = np.unique(test.group, return_index=True)[1]
    truth = np.unique(test.label, return_inverse=True)[1]
    items = torch.nn.functional.normalize(found.candidates(test.column("image").select(first)))
    queries = found.model.encode("text", test.column("text"))
    means, _ = class_means(queries, truth)
    lines = ["# Zero-shot retrieval on CUB: examples", "", "## One query a class, its first 50", ""]
    lines += ["| query: all captions of | right of 50 | the others |", "| --- " * 3 + "|"]
    for c in report.precision.argsort(descending=True).tolist():
        best = truth[first][(items @ means[c]).topk(50).indices]
        others = ", ".join(
            f"{names[other]} {count}" for other, count in _counts(best[best != c]) if count > 1
        )
        lines.append(f"| {names[c]} | {int((best == c).sum())} | {others} |")
    lines += ["", "## One caption as a query, its first five", ""]
    for row in first[:: len(first) // 8].tolist():
        best = truth[first][(items @ queries[row]).topk(5).indices]
        # Captions may not be passed on, so they are told by their place.
        place = int(np.searchsorted(first, row)) + 1
        lines.append(f"- first caption of test picture {place}, {names[truth[row]]}: ")
        lines[-1] += ", ".join(f"**{names[c]}**" if c == truth[row] else names[c] for c in best)
    return "\n".join(lines) + "\n"


def _counts(classes: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Each class and how often it occurs, the most frequent first."""
    values, counts = np.unique(classes, return_counts=True)
    return [(int(values[i]), int(counts[i])) for i in np.argsort(-counts, kind="stable")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    kept = json.loads(RESULTS.read_text())["ours split 0"]
    pairs, data = read_cub(arguments.folder)
    split = split_of(pairs, 0)
    if (data, split_hash(pairs, split)) != (kept["data"], kept["split"]):
        raise SystemExit(f"{arguments.folder} holds other data than {RESULTS.name} is about.")
    training, valid, test = split.of(pairs)
    facts = kept["facts"]
    options = ZeroShotOptions(
        dims=(facts["dim"],),
        ridges=((facts["ridge"][0], facts["ridge"][1]),),
        powers=(facts["power"],),
        class_shares=(facts["class share"],),
        neighbours=(facts["neighbours"],),
        root=facts["root"],
    )
    found = train_zero_shot(training, valid, options)
    report = found.evaluate(test)
    assert test.label is not None
    names = [name(label) for label in sorted(set(test.label))]
    (arguments.out / "zero-shot-confusion.svg").write_text(confusion_svg(report, names))
    text = examples(found, test, report, names)
    footer = f"\nData {data}, split {kept['split']}, AP@50 {report.ap:.1f}.\n"
    (arguments.out / "zero-shot-examples.md").write_text(text + footer)


if __name__ == "__main__":
    main()
