"""Bytes per item against what is found: binary codes, fewer dimensions; and what setting hubs
back at query time gives.

    python -m benchmarks.codes --flickr8k FOLDER --methods linear,refined --seeds 0,1,2
    python -m benchmarks.codes --model MODEL --stores FOLDER
    python -m benchmarks.codes

The first trains models as `benchmarks.flickr8k` does (linear ones with 256 dimensions) and fits
codes to their training pairs; `--models` keeps the models in a folder, `--through` adds codes that
are trained through the towers. The second takes the folk tunes' model and the folder of its stores.
Finished runs are kept in benchmarks/codes.json; without arguments they are shown as tables, and
drawn to docs/results/codes.svg.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.codes_measures import BYTES, Both, Row, Task, code_rows, measure
from benchmarks.codes_tables import draw, tables
from benchmarks.flickr8k import rows_of
from ccal.codes import BinaryCodes
from ccal.data import Table, read_table
from ccal.experiments.folk_tunes import build_stores, split_stores
from ccal.model import DualEncoder, load
from ccal.music import (
    Augmentation,
    AugmentedPairs,
    JoinedPairs,
    SheetAudioPairs,
    SheetAudioStore,
    ThinnedPairs,
)
from ccal.training import Settings, train

RESULTS = Path(__file__).with_name("codes.json")


def flickr8k_model(method: str, seed: int, pairs: Table, models: Path | None) -> DualEncoder:
    place = models / f"{method}-{seed}" if models else None
    if place and place.exists():
        return load(place)
    training, valid = (pairs.pairs[rows] for rows in rows_of(pairs, 6000, seed)[:2])
    options: dict[str, Any] = {"dim": 256} if method == "linear" else {}
    settings = Settings.preset("default", method=method, text="tfidf", seed=seed, **options)
    model = train(settings, training, valid, progress=False).model
    if place:
        model.save(place)
    return model


def flickr8k_features(model: DualEncoder, pairs: Table) -> dict[str, Both]:
    """What the towers take, of the training and the test pairs."""
    assert pairs.split is not None
    found = {}
    for split in ("train", "valid"):
        part = pairs.pairs[np.flatnonzero(pairs.split == split)]
        x, y = (model.features(name, part.column(name)[:]) for name in model.modalities)
        found[split] = x, y
    return found


def flickr8k_task(model: DualEncoder, features: dict[str, Both]) -> Task:
    def both(split: str, corrected: bool) -> Both:
        named = zip(model.modalities, features[split], strict=True)
        x, y = (model.encode(name, view, corrected=corrected) for name, view in named)
        return x, y

    return Task(model, both("train", False), both("valid", False), both("valid", True))


def through_rows(model: DualEncoder, features: dict[str, Both]) -> Iterator[tuple[str, Row]]:
    """Codes that are trained with the towers below them; re-ranked by the vectors of their copy."""
    for size in BYTES:
        tuned, codes = BinaryCodes.fit_through(model, *features["train"], bits=8 * size)
        yield from code_rows(flickr8k_task(tuned, features), codes, "through")


def folk_task(model: DualEncoder, stores: Sequence[SheetAudioStore], limit: int) -> Task:
    """The tunes the model was trained on, and its test tunes; at most `limit` pairs of either."""
    splits = split_stores(stores)

    def both(part: str, corrected: bool) -> Both:
        parts = [
            # At the tempo that the model knows, whatever that of the store.
            AugmentedPairs(
                SheetAudioPairs(store, getattr(split, part), centred=True), Augmentation.none()
            )
            for store, split in zip(stores, splits, strict=True)
        ]
        pairs = ThinnedPairs(JoinedPairs(parts), limit)
        embedded = []
        for some in np.array_split(np.arange(len(pairs)), max(1, len(pairs) // 256)):
            views = dict(zip(("sheet", "audio"), pairs.batch(some), strict=True))
            named = ((name, views[name]) for name in model.modalities)
            embedded.append([model.encode(n, view, corrected=corrected) for n, view in named])
        x, y = (torch.cat(view) for view in zip(*embedded, strict=True))
        return x, y

    test = both("test", False)
    vectors = test if model.hubs is None else both("test", True)
    return Task(model, both("train", False), test, vectors)


def keep(found: Row, key: str, run: Row) -> None:
    found[key] = run
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    print(key, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flickr8k", type=Path)
    parser.add_argument("--methods", default="linear")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--models", type=Path)
    parser.add_argument("--through", action="store_true")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--stores", type=Path)
    parser.add_argument("--limit", type=int, default=5000)
    arguments = parser.parse_args()
    found: Row = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if arguments.flickr8k:
        source = arguments.flickr8k / "pairs.jsonl"
        photos = np.load(arguments.flickr8k / "image_features.npy")
        columns = {"image": photos, "text": "captions"}
        pairs = read_table(source, columns, split="split", captions="concatenate")
        data = hashlib.sha256(source.read_bytes() + photos.tobytes()).hexdigest()[:16]
        named = {"data": data, "split": "train 6,000 (model, codes); dev 1,000 (test)"}
        for method in arguments.methods.split(","):
            for seed in map(int, arguments.seeds.split(",")):
                key = f"flickr8k {method} {seed}"
                model = flickr8k_model(method, seed, pairs, arguments.models)
                features = flickr8k_features(model, pairs)
                task = flickr8k_task(model, features)
                keep(found, key, {**named, **measure(task, found.get(key, {}))})
                if arguments.through:
                    found[key]["codes"].update(through_rows(model, features))
                    keep(found, key, found[key])
    elif arguments.model and arguments.stores:
        stores = build_stores(arguments.stores)
        task = folk_task(load(arguments.model), stores, arguments.limit)
        data = " ".join(store.manifest["hash"][:12] for store in stores)
        named = {"data": data, "split": "ccal.experiments.folk_tunes.split_stores: train, test"}
        keep(found, "folk tunes 0", {**named, **measure(task, {})})
    else:
        print(tables(found))
        draw(found, Path("docs/results/codes.svg"))


if __name__ == "__main__":
    main()
