from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ccal.data import Data, Pairs, Source, leak_notes, read_source
from ccal.data.duplicates import find_lookalikes
from ccal.data.splits import split_pairs

SOURCE = Source(x="photo=photos.npy", y="text", table="pairs.csv")


def read(pairs: Pairs, source: Source = SOURCE, **options: Any) -> list[str]:
    """The notes on pairs that are split as the source says."""
    split = split_pairs(pairs, by=source.split_by, allow_leaks=source.allow_leaks, **options)
    return leak_notes(Data(pairs, split), source)


def photos(n: int, each: int) -> np.ndarray:
    return np.repeat(np.arange(n), each)[:, None].astype(np.float32)


def test_pairs_without_repeated_content_need_no_words() -> None:
    assert read(Pairs({"photo": photos(50, 1), "text": [f"text {row}" for row in range(50)]})) == []


def test_rows_of_one_photo_are_counted() -> None:
    texts = [f"text {row}" for row in range(200)]
    pairs = Pairs({"photo": photos(40, 5), "text": texts})
    assert read(pairs) == [
        "200 rows show 40 distinct photo items; rows of one photo stay together "
        "(--allow-leaks splits them)"
    ]
    texts[7] = texts[190]
    both = Pairs({"photo": photos(40, 5), "text": texts})
    assert read(both) == [
        "200 rows show 40 distinct photo and 199 distinct text items; rows of one photo or of one "
        "text stay together (--allow-leaks splits them)"
    ]
    assert read(pairs, valid=0, test=0) == []


def test_leaks_that_are_allowed_are_counted() -> None:
    pairs = Pairs({"photo": photos(40, 5), "text": [f"text {row}" for row in range(200)]})
    (note,) = read(pairs, replace(SOURCE, allow_leaks=True))
    assert note.startswith(
        "20 of 20 test and 20 of 20 validation rows share their photo with training"
    )
    assert note.endswith("(from 0) (--allow-leaks)")


def test_class_names_connect_nothing_and_are_mentioned() -> None:
    pairs = Pairs({"photo": photos(40, 5), "text": [f"class {row % 4}" for row in range(200)]})
    together, shared = read(pairs)
    assert together.startswith("200 rows show 40 distinct photo items; rows of one photo stay")
    assert shared == (
        "20 of 20 test and 20 of 20 validation rows share their text with training rows, as "
        '"class 3": too many rows share their text to stay together; if text is a class, see '
        "--label and --split-by label"
    )


def test_a_split_by_labels_reports_what_classes_share() -> None:
    texts = [f"text {row % 90}" for row in range(100)]
    pairs = Pairs({"photo": photos(100, 1), "text": texts}, label=np.arange(100) // 10)
    (note,) = read(pairs, replace(SOURCE, split_by="label", label="class"), seed=2, test=5)
    assert note.startswith("10 of 50 test rows share their text with training rows, as ")
    assert "--" not in note


def table(folder: Path, rows: list[tuple[str, ...]], **options: Any) -> Source:
    with (folder / "pairs.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return Source(table="pairs.csv", x="photo", y="text", folder=str(folder), **options)


def test_a_split_column_is_kept_and_what_its_parts_share_is_a_warning(tmp_path: Path) -> None:
    parts = ["train"] * 80 + ["test"] * 20
    rows = [(f"question {row % 95}", f"text {row}", part) for row, part in enumerate(parts)]
    source = table(tmp_path, [("photo", "text", "part"), *rows], split_column="part")
    data = read_source(source)
    assert data.split.test.tolist() == list(range(80, 100))
    assert leak_notes(data, source) == [
        'warning: 5 of 20 test rows share their photo with training rows, as "question 0"; take '
        "them out of one part, or leave --split-column out, and rows of one photo stay together"
    ]


def test_texts_that_differ_in_case_and_punctuation_are_counted() -> None:
    texts = [f"text {row}" for row in range(100)]
    split = split_pairs(Pairs({"photo": photos(100, 1), "text": texts}))
    one, two = split.test[3], split.train[5]
    texts[one], texts[two] = "A dog, running!", "a  dog running"
    texts[split.valid[0]], texts[split.valid[1]] = "?!", "!!"  # no words to compare
    pairs = Pairs({"photo": photos(100, 1), "text": texts})
    assert leak_notes(Data(pairs, split), SOURCE) == [
        "text items that equal training ones but for case, punctuation and spaces: 1 test, as "
        '"A dog, running!" and "a  dog running"'
    ]


def test_pictures_saved_again_are_recognised(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    rows = []
    for number in range(40):
        pixels = rng.integers(0, 255, (6, 8, 3), dtype=np.uint8)
        picture = image.fromarray(pixels).resize((200, 150))
        picture.save(tmp_path / f"{number}.jpg", quality=90)
        rows.append((f"{number}.jpg", f"text {number}"))
    image.new("RGB", (60, 60), "white").save(tmp_path / "white.png")
    image.new("RGB", (60, 60), "black").save(tmp_path / "black.png")
    rows += [("white.png", "white"), ("black.png", "black")]
    source = table(tmp_path, [("photo", "text"), *rows], test=6)
    split = read_source(source).split
    assert leak_notes(read_source(source), source) == []
    copies = [(split.test[0], split.train[3]), (split.valid[2], split.train[4])]
    for held_out, train in copies:
        with image.open(tmp_path / rows[train][0]) as picture:
            picture.resize((90, 70)).save(tmp_path / rows[held_out][0], quality=40)
    data = read_source(source)
    (test, original), _ = copies
    assert leak_notes(data, source) == [
        "warning: photo items that look like training ones (the same picture re-encoded or "
        "resized?): 1 test and 1 validation, as "
        f"{tmp_path / rows[test][0]} and {tmp_path / rows[original][0]}"
    ]


def test_files_that_all_parts_share(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for number in range(2):
        pixels = np.random.default_rng(number).integers(0, 255, (8, 8, 3), dtype=np.uint8)
        image.fromarray(pixels).save(tmp_path / f"{number}.png")
    rows = [(f"{row % 2}.png", f"text {row}") for row in range(40)]
    source = table(tmp_path, [("photo", "text"), *rows], allow_leaks=True)
    (note,) = leak_notes(read_source(source), source)
    assert note.startswith("4 of 4 test and 4 of 4 validation rows share their photo with training")
    assert note.endswith(".png (--allow-leaks)")


def test_lookalikes_by_a_slow_search() -> None:
    rng = np.random.default_rng(0)
    looks = rng.integers(0, 255, (1500, 12), dtype=np.uint8)
    copies = np.clip(looks[[3, 1400, 7]] + rng.integers(0, 4, (3, 12)), 0, 255).astype(np.uint8)
    pixels = np.vstack([copies, looks]).astype(float).reshape(-1, 2, 2, 3)
    edges = [(p[1] - p[0]).ravel().tolist() + (p[:, 1] - p[:, 0]).ravel().tolist() for p in pixels]
    expected = np.corrcoef(edges)[:3, 3:]
    best = expected.argmax(axis=1)
    assert find_lookalikes(copies, looks).tolist() == best.tolist() == [3, 1400, 7]
    assert find_lookalikes(looks[:2], looks[5:5]).tolist() == [-1, -1]
