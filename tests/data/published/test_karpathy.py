from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ccal.data import column_split
from ccal.data.published import read_karpathy
from ccal.errors import InputError
from tests.data.published.trees import group_of, problems_of, split_of, touch


def entry(number: int, split: str | None, *raw: str, **more: Any) -> dict[str, Any]:
    """An image as the files have it."""
    sentences = [
        {"tokens": text.lower().split(), "raw": text, "imgid": number, "sentid": 5 * number + i}
        for i, text in enumerate(raw)
    ]
    sentids = [sentence["sentid"] for sentence in sentences]
    name = f"{number}.jpg"
    known = {"sentids": sentids, "imgid": number, "sentences": sentences, "split": split}
    return {**known, "filename": name, **more}


def write(path: Path, images: list[Any]) -> Path:
    path.write_text(json.dumps({"images": images, "dataset": path.stem}))
    return path


def test_flickr(tmp_path: Path) -> None:
    images = [
        entry(0, "train", "A dog .", "A brown dog ."),
        entry(1, "val", "A café ."),
        entry(2, "test", "Two cats ."),
    ]
    path = write(tmp_path / "dataset_flickr8k.json", images)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    folder = touch(tmp_path / "Flicker8k_Dataset", "0.jpg", "1.jpg", "2.jpg")
    table = read_karpathy(path, images=folder)
    assert table.pairs.column("image")[1:3] == [str(folder / "0.jpg"), str(folder / "1.jpg")]
    assert table.pairs.column("text")[:] == ["A dog .", "A brown dog .", "A café .", "Two cats ."]
    assert split_of(table) == ["train", "train", "valid", "test"]
    assert group_of(table) == table.rows.tolist() == [0, 0, 1, 2]
    assert len(column_split(split_of(table)).train) == 2

    table = read_karpathy(path, images=None, captions="concatenate")
    assert table.pairs.column("image")[:] == ["0.jpg", "1.jpg", "2.jpg"]
    assert table.pairs.column("text")[0] == "A dog .\nA brown dog ."
    assert table.pairs.group is None


def test_coco_with_and_without_restval(tmp_path: Path) -> None:
    images = [
        entry(0, "restval", "A man .\n", filepath="val2014", cocoid=17),
        entry(1, "train", "A shoe .", filepath="train2014", cocoid=9),
        entry(1, "test", "A fork .", filepath="val2014", cocoid=42),
    ]
    path = write(tmp_path / "dataset_coco.json", images)
    touch(tmp_path, "val2014/0.jpg", "train2014/1.jpg", "val2014/1.jpg")
    table = read_karpathy(path, images=tmp_path)
    assert table.pairs[0] == (str(tmp_path / "val2014/0.jpg"), "A man .")
    assert split_of(table) == ["train", "train", "test"]
    table = read_karpathy(path, images=None, restval=False)
    assert table.pairs.column("image")[:] == ["train2014/1.jpg", "val2014/1.jpg"]
    assert split_of(table) == ["train", "test"]
    assert table.rows.tolist() == [1, 2]
    assert not table.bad


def test_problems_by_entry(tmp_path: Path) -> None:
    images = [
        entry(0, "train", "good", " "),
        entry(1, "validate", "good"),
        entry(2, "test"),
        "3.jpg",
        entry(4, "test", "good", filename=None),
        entry(0, "test", "good"),
        entry(6, "test", "good", sentences=[{"tokens": ["good"]}, "good"]),
        entry(7, "test", "good"),
        entry(8, "test", "good"),
        entry(9, None, "\ud800"),
    ]
    path = write(tmp_path / "dataset_flickr30k.json", images)
    folder = touch(tmp_path / "flickr30k-images", "0.jpg", "7.jpg")
    table, problems = problems_of(lambda s: read_karpathy(path, images=folder, strict=s))
    assert problems == [
        "images[0].sentences[1]: raw is empty",
        "images[1]: split is 'validate'; expected train, restval, val or test",
        "images[2]: 2.jpg has no sentences",
        "images[3]: expected a JSON object, got a str",
        "images[4]: filename is missing",
        "images[6].sentences[0]: raw is missing",
        "images[6].sentences[1]: raw is missing",
        "images[9]: split is None; expected train, restval, val or test",
        "images[9].sentences[0]: raw is not UTF-8 text",
        "images[5]: 0.jpg was given in images[0] already",
        f"images[8]: no image file {folder / '8.jpg'}",
    ]
    assert table.rows.tolist() == [0, 7]
    assert split_of(table) == ["train", "test"]
    assert table.bad.rows == 10


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"images": [\n  {"filename": "a.jpg",}', r"coco\.json, line 2, column \d+: not JSON"),
        (b"", "line 1, column 1: not JSON"),
        (b'{"images": ["caf\xe9"]}', "not JSON in UTF-8"),
        (b"[]", "expected a JSON object, got a list"),
        (b'{"annotations": [], "info": 1}', "a list 'images'; the file has 'annotations', 'info'"),
        (b'{"images": {}}', "expected a list 'images'; the file has 'images'"),
        (b'{"images": []}', "(?s)0 problems among 0 images.*Nothing is left"),
    ],
)
def test_broken_files(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "dataset_coco.json").write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_karpathy(tmp_path / "dataset_coco.json", images=None)
