"""The front ends on Flickr8k and CUB, where the data is at hand."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ccal.data import column_split, find_bad_rows, load_array, read_table, split_pairs
from ccal.features import TfidfVectoriser

DATA = Path(__file__).parents[2].parent / "shared/data"
needs = {
    name: pytest.mark.skipif(not (DATA / name).is_dir(), reason=f"{DATA / name} is not there")
    for name in ("flickr8k", "cub")
}


@needs["flickr8k"]
@pytest.mark.parametrize(("min_count", "lemmas"), [(5, True), (3, True), (5, False)])
def test_flickr8k_concatenated(min_count: int, lemmas: bool) -> None:
    features = load_array(DATA / "flickr8k/image_features.npy")
    assert find_bad_rows(features)[1] == 0
    given: dict[str, Any] = {"image": features, "text": "captions"}
    path = DATA / "flickr8k/pairs.jsonl"
    table = read_table(path, given, split="split", captions="concatenate")
    assert table.split is not None
    train, valid, _ = column_split(table.split).of(table.pairs)
    assert (len(train), len(valid)) == (6000, 1000)
    start = time.perf_counter()
    vectoriser = TfidfVectoriser(min_count=min_count, lemmatise=lemmas)
    vectoriser.fit(train.column("text")[:])
    fitted = time.perf_counter()
    matrix = vectoriser.transform(train.column("text")[:])
    done = time.perf_counter()
    print(
        f"\nFlickr8k min_count={min_count} lemmas={lemmas}: {matrix.shape[1]} words, "
        f"{(matrix > 0).sum(1).mean():.1f} a text; fit {fitted - start:.2f} s, "
        f"transform {done - fitted:.2f} s"
    )
    np.testing.assert_allclose(np.linalg.norm(matrix, axis=1), 1, atol=1e-5)
    assert bool((matrix > 0).any(axis=0).all())
    vectoriser.transform(valid.column("text")[:])
    assert vectoriser.empty_texts == 0


@needs["flickr8k"]
def test_flickr8k_separate() -> None:
    features = load_array(DATA / "flickr8k/image_features.npy")
    pairs = read_table(DATA / "flickr8k/pairs.jsonl", {"image": features, "text": "captions"}).pairs
    assert len(pairs) == 35_000
    assert pairs.column("image").source is features
    former = split_pairs(pairs, valid=500, test=1000, allow_leaks=True).of(pairs)
    assert [len(part) for part in former] == [27_500, 2_500, 5_000]
    # One photo is there twice, and 351 rows have the caption of another photo.
    parts = split_pairs(pairs, valid=500, test=1000).of(pairs)
    assert [len(part) for part in parts] == [27_500, 2_500, 5_000]
    for name in pairs.names:
        train, valid, test = (set(part.items(name).tolist()) for part in parts)
        assert len(train | valid | test) == len(train) + len(valid) + len(test)
    assert np.array_equal(parts[2].column("image")[0], parts[2].column("image")[4])


@needs["flickr8k"]
def test_flickr8k_thumbnails_are_those_of_dev() -> None:
    table = read_table(
        DATA / "flickr8k/pairs.jsonl",
        {"image": "file", "text": "captions"},
        files=["image"],
        root=DATA / "flickr8k/thumbnails",
        split="split",
        strict=False,
    )
    assert table.bad.total == 6000
    assert table.split is not None
    assert set(table.split.tolist()) == {"valid"}


@needs["cub"]
def test_cub_by_class() -> None:
    path = DATA / "cub/pairs.jsonl"
    pairs = read_table(path, {"image": "file", "text": "captions"}, label="class").pairs
    assert len(pairs) == 88_550
    parts = split_pairs(pairs, by="label", valid=50, test=0).of(pairs)
    classes = [set(part.label.tolist()) for part in parts[:2] if part.label is not None]
    assert [len(c) for c in classes] == [100, 50]
    assert not classes[0] & classes[1]
