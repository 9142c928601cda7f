from __future__ import annotations

from pathlib import Path

import pytest

from ccal.data.published import read_iapr_tc12
from ccal.errors import InputError
from tests.data.published.trees import HINT, problems_of, touch


def annotation(name: str, description: str) -> str:
    """An annotation file as published, but for what it says."""
    return (
        "<DOC>\n"
        f"<DOCNO>annotations/{name}.eng</DOCNO>\n"
        "<TITLE>Market & church</TITLE>\n"
        f"<DESCRIPTION>{description}</DESCRIPTION>\n"
        "<NOTES></NOTES>\n"
        "<LOCATION>Córdoba, Argentina</LOCATION>\n"
        "<DATE>3 May 2001</DATE>\n"
        f"<IMAGE>images/{name}.jpg</IMAGE>\n"
        f"<THUMBNAIL>thumbnails/{name}.jpg</THUMBNAIL>\n"
        "</DOC>\n"
    )


def write(root: Path, name: str, content: str, encoding: str = "latin-1") -> Path:
    path = root / "annotations_complete_eng" / f"{name}.eng"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode(encoding))
    return path


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for number in (112, 25, 116, 1000):
        name = f"{number // 1000:02}/{number}"
        write(tmp_path, name, annotation(name, f"a house & a café, {number};"))
        touch(tmp_path / "images", f"{name}.jpg")
    write(tmp_path, "00/._25", "\0")
    return tmp_path


def test_descriptions_in_the_order_of_numbers(tree: Path) -> None:
    table = read_iapr_tc12(tree / "annotations_complete_eng", images=tree / "images")
    numbers = (25, 112, 116, 1000)
    assert table.pairs.column("text")[:] == [f"a house & a café, {n};" for n in numbers]
    assert table.pairs.column("image")[:2] == [
        str(tree / "images/00/25.jpg"),
        str(tree / "images/00/112.jpg"),
    ]
    assert table.rows.tolist() == [0, 1, 2, 3]
    assert table.pairs.group is None
    assert not table.bad


def test_encodings(tree: Path) -> None:
    text = "a “café” – on\n the left;"
    write(tree, "00/25", annotation("00/25", text).replace("\n", "\r\n"), "cp1252")
    write(tree, "00/112", annotation("00/112", text), "utf-8")
    write(tree, "00/116", annotation("00/116", text), "utf-8-sig")
    # A byte that Windows' code page does not have.
    write(tree, "01/1000", annotation("01/1000", "a caf\xe9\x81"))
    table = read_iapr_tc12(tree / "annotations_complete_eng", images=None)
    assert table.pairs.column("text")[:] == ["a “café” – on the left;"] * 3 + ["a café\x81"]


def test_missing_images_are_left_out_and_counted(tree: Path) -> None:
    (tree / "images/00/112.jpg").unlink()
    folder = tree / "annotations_complete_eng"
    table, problems = problems_of(
        lambda strict: read_iapr_tc12(folder, images=tree / "images", strict=strict)
    )
    assert problems == [f"00/112.eng: no image file {tree / 'images/00/112.jpg'}"]
    assert str(table.bad).startswith(f"{folder}: 1 problem among 4 images\n")
    assert table.rows.tolist() == [0, 2, 3]
    assert table.split is None


def test_broken_files(tree: Path) -> None:
    write(tree, "00/25", annotation("00/25", " \n"))
    write(tree, "00/112", annotation("00/112", "?").replace("DESCRIPTION", "TEXT"))
    write(tree, "00/113", annotation("00/116", "the second for an image;"))
    write(tree, "00/114", annotation("00/114", "no image;").replace("IMAGE", "PICTURE"))
    unclosed = annotation("01/1000", "a road < 5 m wide;").replace("</DESCRIPTION>", "")
    write(tree, "01/1000", unclosed)
    write(tree, "01/1001", "")
    folder = tree / "annotations_complete_eng"
    table, problems = problems_of(lambda strict: read_iapr_tc12(folder, images=None, strict=strict))
    assert problems == [
        "00/25.eng: <DESCRIPTION> is empty",
        "00/112.eng: <DESCRIPTION> is missing",
        "00/114.eng: no <IMAGE>",
        "01/1001.eng: no <IMAGE>",
        "00/116.eng: 00/116.jpg was given in 00/113.eng already",
    ]
    assert table.pairs.column("text")[:] == ["the second for an image;", "a road < 5 m wide;"]
    assert table.rows.tolist() == [2, 5]
    with pytest.raises(InputError) as error:
        read_iapr_tc12(folder, images=None, strict=True)
    assert str(error.value).endswith(f"\n  {problems[-1]}{HINT}")


def test_the_wrong_folder(tree: Path) -> None:
    with pytest.raises(InputError, match="give the folder annotations_complete_eng itself"):
        read_iapr_tc12(tree / "images", images=None)
    with pytest.raises(InputError, match="no such folder"):
        read_iapr_tc12(tree / "annotations_complete_ger", images=None)
