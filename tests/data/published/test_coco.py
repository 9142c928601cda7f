from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ccal.data.published import read_coco
from ccal.errors import InputError
from tests.data.published.trees import group_of, problems_of, split_of, touch


def write(root: Path, year: str, images: list[Any], annotations: list[Any]) -> Path:
    """`annotations/captions_<year>.json` with what the true files have beside the captions."""
    path = root / "annotations" / f"captions_{year}.json"
    path.parent.mkdir(exist_ok=True)
    content = {"info": {"year": 2014}, "images": images, "licenses": [], "annotations": annotations}
    path.write_text(json.dumps(content))
    return path


def image(number: int, year: str) -> dict[str, Any]:
    name = f"COCO_{year}_{number:012}.jpg"
    return {"license": 5, "file_name": name, "id": number, "height": 640, "width": 480}


def caption(number: int, image_id: int, text: str) -> dict[str, Any]:
    return {"image_id": image_id, "id": number, "caption": text}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    train = [image(57870, "train2014"), image(9, "train2014")]
    write(
        tmp_path,
        "train2014",
        train,
        [
            caption(787980, 57870, "Seven kites above a beach.\n"),
            caption(48, 9, "A pile of bricks ."),
            caption(789366, 57870, "Kites fly  over the sand."),
        ],
    )
    write(
        tmp_path, "val2014", [image(42, "val2014")], [caption(641613, 42, "A bus under a bridge.")]
    )
    files = [f"train2014/{entry['file_name']}" for entry in train]
    return touch(tmp_path, *files, "val2014/COCO_val2014_000000000042.jpg")


def files(tree: Path) -> dict[str, Path]:
    folder = tree / "annotations"
    return {part: folder / f"captions_{part}2014.json" for part in ("train", "val")}


def test_parts_by_file(tree: Path) -> None:
    table = read_coco(files(tree), images=tree)
    assert table.pairs.column("text")[:] == [
        "Seven kites above a beach.",
        "Kites fly over the sand.",
        "A pile of bricks .",
        "A bus under a bridge.",
    ]
    assert table.pairs.column("image")[2:] == [
        str(tree / "train2014/COCO_train2014_000000000009.jpg"),
        str(tree / "val2014/COCO_val2014_000000000042.jpg"),
    ]
    assert split_of(table) == ["train", "train", "train", "valid"]
    assert group_of(table) == table.rows.tolist() == [0, 0, 1, 2]
    assert table.bad.rows == 3


def test_concatenated_by_name(tree: Path) -> None:
    table = read_coco({"test": files(tree)["val"]}, images=None, captions="concatenate")
    assert table.pairs[0] == ("val2014/COCO_val2014_000000000042.jpg", "A bus under a bridge.")
    assert split_of(table) == ["test"]
    table = read_coco(files(tree), images=None, captions="concatenate")
    assert table.pairs.column("text")[0] == "Seven kites above a beach.\nKites fly over the sand."
    assert len(table.pairs) == 3


def test_problems_by_entry(tree: Path) -> None:
    year = "val2014"
    images = [image(1, year), image(2, year), {"id": "3"}, image(1, year), {"id": 5}]
    images += [image(6, year), {"id": 8, "file_name": ""}]
    annotations = [
        caption(0, 1, "good"),
        caption(1, 1, " \n"),
        caption(2, 77, "of no image"),
        {"caption": "no image_id"},
        caption(3, 5, "of an image without a name"),
        {"image_id": 6},
        7,
    ]
    given = {**files(tree), "val": write(tree, year, images, annotations)}
    name = "val2014/COCO_val2014_000000000002.jpg"
    touch(tree, "val2014/COCO_val2014_000000000001.jpg")
    bricks = tree / "train2014/COCO_train2014_000000000009.jpg"
    bricks.unlink()
    table, problems = problems_of(lambda strict: read_coco(given, images=tree, strict=strict))
    file = "captions_val2014.json"
    assert problems == [
        f"{file} images[2]: expected a JSON object with a whole number as id",
        f"{file} images[3]: id 1 was given in {file} images[0] already",
        f"{file} images[4]: file_name is missing",
        f"{file} images[6]: file_name is empty",
        f"{file} annotations[1]: caption is empty",
        f"{file} annotations[2]: image_id 77 is the id of no image",
        f"{file} annotations[3]: expected a JSON object with a whole number as image_id",
        f"{file} annotations[5]: caption is missing",
        f"{file} annotations[6]: expected a JSON object with a whole number as image_id",
        f"{file} images[1]: {name} has no captions",
        f"captions_train2014.json images[1]: no image file {bricks}",
    ]
    assert table.rows.tolist() == [0, 0, 2]
    assert table.pairs.column("text")[-1] == "good"
    assert str(table.bad).startswith(f"{tree / 'annotations'}: 11 problems among 9 images")


def test_a_file_for_two_parts(tree: Path) -> None:
    path = files(tree)["val"]
    both = {"train": path, "test": path}
    table, problems = problems_of(lambda strict: read_coco(both, images=None, strict=strict))
    name = "val2014/COCO_val2014_000000000042.jpg"
    place = f"{path.name} images[0]"
    assert problems == [f"{place}: {name} was given in {place} already"]
    assert split_of(table) == ["train"]


def test_wrong_arguments(tree: Path) -> None:
    with pytest.raises(InputError, match="annotations is empty"):
        read_coco({}, images=None)
    with pytest.raises(InputError, match="given for 'val2014'; expected train, valid or test"):
        read_coco({"val2014": files(tree)["val"]}, images=None)
    with pytest.raises(InputError, match="no such file"):
        read_coco({"train": tree / "captions_train2017.json"}, images=None)
    with pytest.raises(InputError, match="captions must be"):
        read_coco(files(tree), images=None, captions="all")  # type: ignore[arg-type]
    files(tree)["val"].write_text('{"images": []}')
    with pytest.raises(InputError, match="expected a list 'annotations'; the file has 'images'"):
        read_coco(files(tree), images=None)
