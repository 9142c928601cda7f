"""A look at zero-shot retrieval: which classes are confused, and what some queries find.

    python -m benchmarks.cub_views FOLDER docs/results
    python -m benchmarks.cub_views FOLDER OUT --images CUB_200_2011/images
    python -m benchmarks.cub_views TREE OUT --name drawn

FOLDER is that of `benchmarks.cub`; the model is the one that was chosen there for the first split.
TREE is a folder in the layout of Reed et al. with its images, such as `benchmarks.drawn_birds`
writes; its lists of classes are the split. OUT gets NAME-confusion.svg, NAME-examples.md and a
figure: NAME-examples.svg of names or, with image files, NAME-examples.jpg of pictures; these have a
page NAME-examples.html as well. CUB's photographs belong to those who took them and may not be
passed on, so look at theirs at home.
"""

from __future__ import annotations

import argparse
import io
import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.cub import RESULTS, read_cub, split_hash, split_of
from benchmarks.hashes import hash_of
from benchmarks.retrieval_figure import retrieval_figure
from ccal.data import Pairs, Source, read_source
from ccal.errors import InputError
from ccal.evaluation import ClassReport, EmbeddedPairs
from ccal.numbering import numbered
from ccal.optional import require
from ccal.reports import Example, confusion_plot, pick_classes, pick_examples, write_report
from ccal.reports.style import render
from ccal.training import ZeroShot, ZeroShotOptions, evaluate, train_zero_shot
from ccal.training.scoring import embed_pairs


@dataclass(frozen=True)
class View:
    """A model, the test pairs, what was found among them, and the image file of each item."""

    found: ZeroShot
    test: Pairs
    searched: EmbeddedPairs
    report: ClassReport
    files: list[Path] | None
    about: str


def name(label: str) -> str:
    """007.Parakeet_Auklet -> Parakeet Auklet."""
    return label.split(".")[-1].replace("_", " ")


def of_cub(folder: Path, images: Path | None) -> View:
    """The model and test classes of the first split, as `benchmarks.cub` had them."""
    kept = json.loads(RESULTS.read_text())["ours split 0"]
    pairs, data = read_cub(folder)
    split = split_of(pairs, 0)
    if (data, split_hash(pairs, split)) != (kept["data"], kept["split"]):
        raise SystemExit(f"{folder} holds other data than {RESULTS.name} is about.")
    training, valid, test = split.of(pairs)
    facts = kept["facts"]
    options = ZeroShotOptions(
        dims=(facts["dim"],),
        ridges=((facts["ridge"][0], facts["ridge"][1]),),
        powers=(facts["power"],),
        class_shares=(facts["class share"],),
        neighbours=(facts["neighbours"],),
        pair_count=facts.get("pair count", 0),
        root=facts["root"],
    )
    assert test.group is not None
    files = None
    if images is not None:
        with (folder / "pairs.jsonl").open() as lines:
            listed = [json.loads(line)["file"] for line in lines]
        # A group is the row of its picture in the table.
        files = [images / listed[int(row)] for row in np.unique(test.group)]
    about = f"Data {data}, split {kept['split']}"
    return view(train_zero_shot(training, valid, options), test, files, about)


def of_tree(folder: Path, images: Path | None) -> View:
    """A model for a folder in Reed's layout, chosen on its validation classes."""
    source = Source(
        x="image",
        y="text",
        table=str(folder.absolute()),
        layout="reed",
        files=None if images is None else str(images.absolute()),
    )
    data = read_source(source)
    training, valid, test = (data.part(part) for part in ("train", "valid", "test"))
    found = train_zero_shot(training, valid, ZeroShotOptions(neighbours=(1, 3, 5)))
    # Of what the files hold, wherever they are.
    contents = (p.read_bytes() for p in sorted(folder.rglob("*")) if p.suffix in (".txt", ".jpg"))
    about = f"Data {hash_of(*contents)}, split {split_hash(data.pairs, data.split)}"
    pictures = test.column("image").select(numbered(test.items("image"))[0])
    files = [Path(path) for path in pictures[:]]
    return view(found, test, files, about)


def view(found: ZeroShot, test: Pairs, files: list[Path] | None, about: str) -> View:
    missing = [path for path in files or () if not path.is_file()]
    if missing:
        raise InputError(
            f"{len(missing):,} of {len(files or ()):,} image files are missing, the first is "
            f"{missing[0]}; --images must be the folder that has the folders of the classes."
        )
    searched = embed_pairs(found.model, test)
    return View(found, test, searched, found.evaluate(test), files, about)


def class_examples(shown: View, *, each: int, k: int) -> list[Example]:
    return pick_classes(
        shown.report,
        *shown.searched.class_queries(),
        shows=shown.files,
        name="image",
        each=each,
        k=k,
    )


def markdown(shown: View, picture: str) -> str:
    """What each class finds, and what some captions find."""
    report = shown.report
    classes, _, found, item_labels = shown.searched.class_queries()
    names, truth = [name(label) for label in shown.searched.classes], item_labels.numpy()
    items = torch.nn.functional.normalize(found)
    captions = shown.searched.y[shown.searched.y_rows]
    k = report.k
    lines = [
        "# Zero-shot retrieval: examples",
        "",
        "Classes of best, typical and worst precision, and the first eight pictures that each "
        "found with all",
        "of its captions. A dashed frame is a picture of another class.",
        "",
        f"![classes and what they found]({picture})",
        "",
        f"## One query a class, its first {k}",
        "",
    ]
    lines += [f"| query: all captions of | right of {k} | the others |", "| --- " * 3 + "|"]
    for c in report.precision.argsort(descending=True, stable=True).tolist():
        best = truth[(items @ classes[c]).topk(k).indices]
        others = ", ".join(
            f"{names[other]} {count}" for other, count in _counts(best[best != c]) if count > 1
        )
        lines.append(f"| {names[c]} | {int((best == c).sum())} | {others} |")
    lines += ["", "## One caption as a query, its first five", ""]
    assert shown.test.group is not None
    first = np.unique(shown.test.group, return_index=True)[1]
    for place in range(0, len(first), max(1, len(first) // 8)):
        own = truth[place]
        best = truth[(items @ captions[first[place]]).topk(min(5, len(items))).indices]
        # Captions may not be passed on, so they are told by their place.
        line = f"- first caption of test picture {place + 1}, {names[own]}: "
        lines.append(line + ", ".join(f"**{names[c]}**" if c == own else names[c] for c in best))
    return "\n".join([*lines, "", f"{shown.about}, AP@{k} {report.ap:.1f}.", ""])


def page(shown: View, path: Path) -> None:
    """All examples with their pictures inside one HTML file."""
    found = shown.searched
    captions = pick_examples(
        found.class_queries()[2],
        found.y,
        x_items=shown.files,
        y_items=shown.test.column("text")[found.first_pairs(1).numpy()],
        groups=found.positives,
        names=("image", "text"),
    )
    write_report(
        path,
        title="Zero-shot retrieval: examples",
        facts={"about": shown.about, "chosen": json.dumps(shown.found.facts)},
        report=evaluate(shown.found.model, shown.test, bootstrap=0),
        classes=shown.report,
        examples=[*class_examples(shown, each=4, k=8), *captions],
    )


def _counts(classes: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Each class and how often it occurs, the most frequent first."""
    values, counts = np.unique(classes, return_counts=True)
    return [(int(values[i]), int(counts[i])) for i in np.argsort(-counts, kind="stable")]


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--images", type=Path)
    parser.add_argument("--name", default="zero-shot")
    arguments = parser.parse_args(given)
    tree = (arguments.folder / "text_c10").is_dir()
    shown = (of_tree if tree else of_cub)(arguments.folder, arguments.images)
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    stem = arguments.name
    named = replace(shown.report, names=tuple(map(name, shown.report.names)))
    (out / f"{stem}-confusion.svg").write_bytes(render(confusion_plot(named), "svg"))
    figure = retrieval_figure(class_examples(shown, each=2, k=8), name=name)
    picture = f"{stem}-examples.{'svg' if shown.files is None else 'jpg'}"
    (out / f"{stem}-examples.md").write_text(markdown(shown, picture))
    if shown.files is None:
        (out / picture).write_bytes(render(figure, "svg"))
        return
    pillow = require("PIL.Image", extra="images", purpose="Writing pictures")
    with pillow.open(io.BytesIO(render(figure, "png"))) as drawn:
        drawn.convert("RGB").save(out / picture, quality=80)
    page(shown, out / f"{stem}-examples.html")


if __name__ == "__main__":
    main()
