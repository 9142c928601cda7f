from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ccal.data.published import read_reed
from ccal.errors import InputError
from tests.data.published.trees import group_of, label_of, problems_of, split_of, touch

CUB = {
    "001.Black_footed_Albatross": ["Black_Footed_Albatross_0001_796111"],
    "002.Laysan_Albatross": ["Laysan_Albatross_0001_545", "Laysan_Albatross_0002_1027"],
    "003.Sooty_Albatross": ["Sooty_Albatross_0001_1071"],
    "004.Groove_billed_Ani": ["Groove_Billed_Ani_0002_1670"],
}
ALBATROSS, LAYSAN, SOOTY, ANI = CUB


def write(root: Path, classes: dict[str, list[str]]) -> Path:
    for name, images in classes.items():
        (root / "text_c10" / name).mkdir(parents=True)
        for image in images:
            text = f"the first of {image}\nthe second of {image}\n"
            (root / "text_c10" / name / f"{image}.txt").write_text(text)
    return root


def lists(root: Path, **classes: str) -> dict[str, Path]:
    """Lists as published, by part: `train` in trainclasses.txt."""
    paths = {part: root / f"{part}classes.txt" for part in classes}
    for part, path in paths.items():
        path.write_text(classes[part])
    return paths


@pytest.fixture
def cub(tmp_path: Path) -> Path:
    """CUB: a folder of images for each class; files of other kinds lie among the texts."""
    for name, images in CUB.items():
        touch(tmp_path / "images" / name, *(f"{image}.jpg" for image in images))
    write(tmp_path, CUB)
    for name in (f"{SOOTY}.h5", ".DS_Store", f"{SOOTY}/._Sooty_Albatross_0001_1071.txt"):
        (tmp_path / "text_c10" / name).write_bytes(b"\0")
    (tmp_path / "text_c10" / ".cache").mkdir()
    return tmp_path


def options(root: Path, **more: Any) -> dict[str, Any]:
    return {"texts": root / "text_c10", "images": root / "images", **more}


def test_cub_by_lists(cub: Path) -> None:
    classes = lists(cub, train=f"{LAYSAN}\n", val=f"{ANI}\n", test=f"{ALBATROSS}\n")
    table = read_reed(**options(cub, classes=classes))
    assert label_of(table) == [ALBATROSS] * 2 + [LAYSAN] * 4 + [ANI] * 2
    assert split_of(table) == ["test"] * 2 + ["train"] * 4 + ["valid"] * 2
    # Image 3 is of the class in no list.
    assert group_of(table) == table.rows.tolist() == [0, 0, 1, 1, 2, 2, 4, 4]
    assert table.bad.rows == 5
    path = cub / "images" / LAYSAN / "Laysan_Albatross_0002_1027.jpg"
    assert table.pairs[5] == (str(path), "the second of Laysan_Albatross_0002_1027")


def test_captions_concatenated(cub: Path) -> None:
    classes = lists(cub, trainval=f"{LAYSAN}\n{ANI}\n", test=f"{ALBATROSS}\n{SOOTY}")
    given = {"train": classes["trainval"], "test": classes["test"]}
    table = read_reed(**options(cub, images=None, classes=given, captions="concatenate"))
    image = "Sooty_Albatross_0001_1071"
    assert table.pairs[3] == (
        f"{SOOTY}/{image}.jpg",
        f"the first of {image}\nthe second of {image}",
    )
    assert table.pairs.group is None
    assert label_of(table) == [ALBATROSS, LAYSAN, LAYSAN, SOOTY, ANI]
    assert split_of(table) == ["test", "train", "train", "test", "train"]


def test_flowers_have_all_images_in_one_folder(tmp_path: Path) -> None:
    write(tmp_path, {"class_00001": ["image_06734"], "class_00002": ["image_05087"]})
    touch(tmp_path / "jpg", "image_06734.jpg", "image_05087.jpg", "image_00001.jpg")
    table = read_reed(tmp_path / "text_c10", images=tmp_path / "jpg")
    assert table.pairs.column("image")[1:3] == [
        str(tmp_path / "jpg" / "image_06734.jpg"),
        str(tmp_path / "jpg" / "image_05087.jpg"),
    ]
    assert label_of(table) == ["class_00001"] * 2 + ["class_00002"] * 2
    assert table.split is None


def test_files_of_other_systems(cub: Path) -> None:
    path = cub / "text_c10" / ANI / "Groove_Billed_Ani_0002_1670.txt"
    path.write_bytes("\ufeffa black\tbird \r\n\r\nthe bird’s beak\r\n\r\n".encode())
    classes = lists(cub, train=f"{ANI}\n")
    classes["train"].write_bytes(f"\ufeff{ANI}\r\n\r\n".encode())
    table = read_reed(**options(cub, classes=classes))
    assert table.pairs.column("text")[:] == ["a black bird", "the bird’s beak"]


def test_problems_by_file(cub: Path) -> None:
    classes = lists(
        cub, train=f"{LAYSAN}\n{ANI}\n005.Crested_Auklet\n006.Least_Auklet\n", test=f"{ALBATROSS}\n"
    )
    texts, images = cub / "text_c10", cub / "images"
    (texts / LAYSAN / "Laysan_Albatross_0001_545.txt").write_bytes(b"good\ncaf\xe9\n")
    (texts / LAYSAN / "Laysan_Albatross_0002_1027.txt").write_text("\n\n")
    (texts / ANI / "Groove_Billed_Ani_0002_1670.txt").unlink()
    (texts / ALBATROSS / "Black_Footed_Albatross_0002_55.txt").write_text("no image\n")
    image = images / ANI / "Groove_Billed_Ani_0002_1670.jpg"
    image.unlink()
    image.parent.rmdir()
    (texts / ANI / "Groove_Billed_Ani_0003_1.txt").write_text("no folder of images\n")
    (texts / "005.Crested_Auklet").mkdir()
    # Whatever is wrong in classes that are not asked for does not matter.
    (texts / SOOTY / "Sooty_Albatross_0001_1071.txt").write_text("")
    given = options(cub, classes=classes)
    table, problems = problems_of(lambda strict: read_reed(**given, strict=strict))
    assert problems == [
        f"trainclasses.txt line 4: class 006.Least_Auklet has no folder in {texts}",
        f"{LAYSAN}/Laysan_Albatross_0001_545.txt line 2: caption is not UTF-8 text",
        f"{LAYSAN}/Laysan_Albatross_0002_1027.txt: no captions",
        "005.Crested_Auklet: no images: the folder has no .txt file",
        f"{ALBATROSS}/Black_Footed_Albatross_0002_55.txt: no image file "
        f"{images / ALBATROSS / 'Black_Footed_Albatross_0002_55.jpg'}",
        f"{ANI}/Groove_Billed_Ani_0003_1.txt: no image file "
        f"{images / ANI / 'Groove_Billed_Ani_0003_1.jpg'}",
    ]
    assert label_of(table) == [ALBATROSS] * 2 + [LAYSAN]
    assert table.rows.tolist() == [0, 0, 2]


def test_a_class_in_two_lists_is_refused_in_any_case(cub: Path) -> None:
    classes = lists(cub, train=f"{LAYSAN}\n{ANI}\n", val=f"\n{ANI}\n")
    with pytest.raises(InputError) as error:
        read_reed(**options(cub, classes=classes, strict=False))
    assert str(error.value) == (
        f"{ANI} is for train in trainclasses.txt line 2, "
        f"but for valid in valclasses.txt line 2; one of them must go."
    )


def test_wrong_arguments(cub: Path) -> None:
    with pytest.raises(InputError, match="give the folder text_c10 itself"):
        read_reed(cub / "text_c10" / ANI, images=None)
    with pytest.raises(InputError, match="no such folder"):
        read_reed(**options(cub, images=cub / "jpg"))
    with pytest.raises(InputError, match="captions must be"):
        read_reed(**options(cub, captions="all"))
    with pytest.raises(InputError, match="no such file"):
        read_reed(**options(cub, classes={"train": cub / "classes.txt"}))
    with pytest.raises(InputError, match="expected train, valid or test"):
        read_reed(**options(cub, classes={"trainval": cub / "trainvalclasses.txt"}))
