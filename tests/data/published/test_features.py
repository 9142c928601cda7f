from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from ccal.data import Table
from ccal.data.published import image_names, match_features, read_flickr
from ccal.errors import InputError
from tests.data.published.trees import group_of, split_of, touch

FEATURES = np.arange(8, dtype=np.float32).reshape(4, 2)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Images a to d, of which no list names b."""
    tokens = tmp_path / "results_20130124.token"
    tokens.write_text("a.jpg#0\t1\na.jpg#1\t2\nb.jpg#0\t3\nc.jpg#0\t4\nd.jpg#0\t5\n")
    (tmp_path / "train.txt").write_text("a\nd\n")
    (tmp_path / "test.txt").write_text("c\n")
    splits = {part: tmp_path / f"{part}.txt" for part in ("train", "test")}
    return read_flickr(tokens, images=None, splits=splits)


def test_names_are_in_the_order_of_the_data_set(table: Table) -> None:
    assert image_names(table) == ["a.jpg", "c.jpg", "d.jpg"]


def test_features_of_all_images_in_order(table: Table) -> None:
    matched = match_features(table, FEATURES)
    assert matched.pairs.column("image")[:].tolist() == [[0, 1], [0, 1], [4, 5], [6, 7]]
    assert matched.pairs.column("text")[:] == ["1", "2", "4", "5"]
    assert split_of(matched) == ["train", "train", "test", "train"]
    assert group_of(matched) == matched.rows.tolist() == [0, 0, 2, 3]
    assert matched.pairs.column("image").source is FEATURES
    with pytest.raises(InputError, match=r"features has 3 rows, but .*token has 4 images"):
        match_features(table, FEATURES[:3])


def test_features_by_name(table: Table) -> None:
    matched = match_features(table, FEATURES, ["d.jpg", "x.jpg", "c.jpg", "a.jpg"])
    assert matched.pairs.column("image")[:].tolist() == [[6, 7], [6, 7], [4, 5], [0, 1]]
    matched = match_features(table, FEATURES[:3], image_names(table))
    assert matched.pairs.column("image")[:].tolist() == [[0, 1], [0, 1], [2, 3], [4, 5]]


def test_features_by_path(tmp_path: Path, table: Table) -> None:
    folder = touch(tmp_path / "images", "a.jpg", "b.jpg", "c.jpg", "d.jpg")
    files = read_flickr(table.bad.path, images=folder)
    assert image_names(files) == [str(folder / f"{name}.jpg") for name in "abcd"]
    matched = match_features(files, FEATURES, image_names(files))
    assert matched.pairs[4][0].tolist() == [6, 7]


def test_images_without_features(table: Table) -> None:
    names = ["d.jpg", "c.jpg"]
    with pytest.raises(InputError) as error:
        match_features(table, FEATURES[:2], names)
    assert str(error.value) == (
        f"{table.bad.path}: 1 problem among 4 images\n  a.jpg: no features\n"
        "names must be spelled as the images of the table are; names begins with 'd.jpg'."
    )
    matched = match_features(table, FEATURES[:2], names, strict=False)
    assert matched.pairs.column("text")[:] == ["4", "5"]
    assert matched.pairs.column("image")[:].tolist() == [[2, 3], [0, 1]]
    assert split_of(matched) == ["test", "train"]
    assert matched.rows.tolist() == [2, 3]
    assert matched.bad.shown == ["a.jpg: no features"]
    assert not table.bad
    for none, rows in ((["d", "c"], 2), ([], 0)):
        with pytest.raises(InputError, match="3 problems among 4 images"):
            match_features(table, FEATURES[:rows], none, strict=False)


def test_names_that_do_not_fit(table: Table) -> None:
    with pytest.raises(InputError, match=re.escape("features has 4 rows, but names has 1.")):
        match_features(table, FEATURES, ["a.jpg"])
    with pytest.raises(InputError, match=r"names has 'c\.jpg' more than once"):
        match_features(table, FEATURES, ["a.jpg", "c.jpg", "d.jpg", "c.jpg"])
