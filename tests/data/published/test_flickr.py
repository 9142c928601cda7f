from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ccal.data import split_pairs
from ccal.data.published import read_flickr
from ccal.errors import InputError
from tests.data.published.trees import group_of, problems_of, split_of, touch

TOKENS = (
    "1000_a.jpg#0\tFour boys row a blue boat .\n"
    "1000_a.jpg#1\tA boat with children on a lake .\n"
    "1001_b.jpg#0\tSnow lies on the roof of a barn\n"
    "1001_b.jpg#1\tA barn in winter .\n"
    "1002_c.jpg#0\tSomebody paints a fence .\n"
    "1003_d.jpg#0\tAn old tractor .\n"
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Flickr8k as it unpacks, with an image (1003_d) that no list names, as 92 of the true ones."""
    text = tmp_path / "Flickr8k_text"
    text.mkdir()
    (text / "Flickr8k.token.txt").write_text(TOKENS)
    (text / "Flickr_8k.trainImages.txt").write_text("1001_b.jpg\n")
    (text / "Flickr_8k.devImages.txt").write_text("1000_a.jpg\n")
    (text / "Flickr_8k.testImages.txt").write_text("1002_c.jpg\n")
    names = [f"{name}.jpg" for name in ("1000_a", "1001_b", "1002_c", "1003_d")]
    touch(tmp_path / "Flicker8k_Dataset", *names)
    return tmp_path


def options(tree: Path, **more: Any) -> dict[str, Any]:
    text = tree / "Flickr8k_text"
    splits = {part: text / f"Flickr_8k.{part}Images.txt" for part in ("train", "dev", "test")}
    return {
        "tokens": text / "Flickr8k.token.txt",
        "images": tree / "Flicker8k_Dataset",
        "splits": splits,
        **more,
    }


def test_captions_separate(tree: Path) -> None:
    table = read_flickr(**options(tree))
    folder = tree / "Flicker8k_Dataset"
    names = ["1000_a", "1000_a", "1001_b", "1001_b", "1002_c"]
    assert table.pairs.column("image")[:] == [str(folder / f"{name}.jpg") for name in names]
    assert table.pairs.column("text")[:] == [
        "Four boys row a blue boat .",
        "A boat with children on a lake .",
        "Snow lies on the roof of a barn",
        "A barn in winter .",
        "Somebody paints a fence .",
    ]
    assert split_of(table) == ["valid", "valid", "train", "train", "test"]
    assert group_of(table) == table.rows.tolist() == [0, 0, 1, 1, 2]
    assert not table.bad
    assert table.bad.rows == 4


def test_captions_concatenated(tree: Path) -> None:
    table = read_flickr(**options(tree, captions="concatenate"))
    assert table.pairs.column("text")[0] == (
        "Four boys row a blue boat .\nA boat with children on a lake ."
    )
    assert split_of(table) == ["valid", "train", "test"]
    assert table.rows.tolist() == [0, 1, 2]
    assert table.pairs.group is None


def test_without_lists_all_images_are_there_and_stay_whole(tree: Path) -> None:
    table = read_flickr(**options(tree, splits=None, images=None))
    assert table.split is None
    assert table.pairs.column("image")[-1] == "1003_d.jpg"
    split = split_pairs(table.pairs, valid=1, test=1)
    parts = [set(table.rows[rows].tolist()) for rows in (split.train, split.valid, split.test)]
    assert sorted(len(part) for part in parts) == [1, 1, 2]
    assert set.union(*parts) == {0, 1, 2, 3}


def test_lists_without_the_suffix(tree: Path) -> None:
    given = options(tree)
    for path, name in zip(given["splits"].values(), ("1001_b", "1000_a", "1002_c"), strict=True):
        path.write_text(name)
    assert split_of(read_flickr(**given)) == ["valid", "valid", "train", "train", "test"]


def test_byte_order_mark_windows_line_ends_and_tabs(tree: Path) -> None:
    given = options(tree)
    given["tokens"].write_bytes(
        b"\xef\xbb\xbf" + TOKENS.replace("\n", "\r\n").replace("a blue", "a\tblue ").encode()
    )
    for path in given["splits"].values():
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n\r\n"))
    table = read_flickr(**given)
    assert table.pairs.column("text")[0] == "Four boys row a blue boat ."
    assert split_of(table) == ["valid", "valid", "train", "train", "test"]


def test_problems_by_line(tree: Path) -> None:
    given = options(tree, splits=None)
    with given["tokens"].open("ab") as file:
        file.write(
            b"1003_d.jpg#1\t\n"
            b"1003_d.jpg#2 no tab\n"
            b"1003_d.jpg\tno number\n"
            b"1003_d.jpg#0\tagain\n"
            b"1003_d.jpg#3\tcaf\xe9\n"
            b"\n"
            b"2258_e.jpg.1#0\tan empty platform\n"
            b"2258_e.jpg.1#1\tthe platform at night\n"
            b"1004_f.jpg#0\t \n"
        )
    table, problems = problems_of(lambda strict: read_flickr(**given, strict=strict))
    missing = tree / "Flicker8k_Dataset" / "2258_e.jpg.1"
    expected = "expected name.jpg#number, a tab and a caption, got"
    assert problems == [
        "line 7: caption is empty",
        f"line 8: {expected} '1003_d.jpg#2 no tab'",
        f"line 9: {expected} '1003_d.jpg\\tno number'",
        "line 10: 1003_d.jpg#0 was given in line 6 already",
        "line 11: caption is not UTF-8 text",
        "line 15: caption is empty",
        f"line 13: no image file {missing}",
    ]
    assert group_of(table) == [0, 0, 1, 1, 2, 3]
    assert str(table.bad).startswith(f"{given['tokens']}: 7 problems among 6 images\n")
    # Without files, the odd name is as good as any.
    table = read_flickr(**{**given, "images": None}, strict=False)
    assert table.pairs.column("image")[-2:] == ["2258_e.jpg.1"] * 2
    assert group_of(table)[-2:] == [4, 4]


def test_nothing_left(tree: Path) -> None:
    (tree / "empty").mkdir()
    with pytest.raises(InputError, match=r"(?s)3 problems among 4 images.*Nothing is left"):
        read_flickr(**options(tree, images=tree / "empty"), strict=False)


def test_a_listed_image_without_captions(tree: Path) -> None:
    given = options(tree)
    given["splits"]["test"].write_text("1002_c.jpg\n1009_z.jpg\n")
    table, problems = problems_of(lambda strict: read_flickr(**given, strict=strict))
    where = "Flickr_8k.testImages.txt line 2"
    assert problems == [f"{where}: 1009_z.jpg has no captions in Flickr8k.token.txt"]
    assert len(table.pairs) == 5


def test_an_image_in_two_parts_is_refused_in_any_case(tree: Path) -> None:
    given = options(tree, strict=False)
    given["splits"]["test"].write_text("\n1002_c.jpg\n1001_b.jpg\n")
    message = (
        "1001_b.jpg is for train in Flickr_8k.trainImages.txt line 1, "
        "but for test in Flickr_8k.testImages.txt line 3"
    )
    with pytest.raises(InputError, match=re.escape(message)):
        read_flickr(**given)


def test_wrong_arguments(tree: Path) -> None:
    with pytest.raises(InputError, match="captions must be 'separate' or 'concatenate'"):
        read_flickr(**options(tree, captions="both"))
    with pytest.raises(InputError, match="images: no such folder"):
        read_flickr(**options(tree, images=tree / "images"))
    with pytest.raises(InputError, match="a file, not a folder"):
        read_flickr(**options(tree, images=options(tree)["tokens"]))
    with pytest.raises(InputError, match="no such file"):
        read_flickr(**options(tree, tokens=tree / "tokens.txt"))
    with pytest.raises(InputError, match="is a folder"):
        read_flickr(**options(tree, tokens=tree))
    splits = options(tree)["splits"]
    with pytest.raises(InputError, match="given for 'trian'; expected train, valid or test"):
        read_flickr(**options(tree, splits={"trian": splits["train"]}))
    splits["train"].write_text("\n")
    with pytest.raises(InputError, match="name nothing"):
        read_flickr(**options(tree, splits={"train": splits["train"]}))
