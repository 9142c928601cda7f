from __future__ import annotations

import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ccal.data import Source, check_layout, describe_layout, read_layout, read_source
from ccal.data.published import read_reed_features
from ccal.data.published.layouts import PUBLISHED
from ccal.data.source import LAYOUTS, Layout
from ccal.errors import InputError
from tests.data.published.small_sets import WRITERS, features, karpathy
from tests.data.published.torch7_files import tensor, write_t7
from tests.data.published.trees import label_of, split_of, touch

SIZES: dict[Layout, tuple[int, int, int]] = {
    "flickr8k": (40, 10, 10),
    "flickr30k": (48, 6, 6),
    "karpathy": (40, 10, 10),
    "coco": (40, 18, 2),
    "iapr-tc12": (48, 6, 6),
    "reed": (36, 12, 12),
}


def source(name: Layout, folder: Path, **more: Any) -> Source:
    return Source(x="image", y="text", table=str(folder), layout=name, **more)


def images_of(data: Any, part: str) -> set[str]:
    rows = data.part(part).column("image")
    return {str(np.asarray(row).tobytes()) for row in rows[:]}


def test_every_layout_is_described() -> None:
    assert tuple(PUBLISHED) == LAYOUTS == get_args(Layout) == tuple(WRITERS)
    for name, layout in PUBLISHED.items():
        text = describe_layout(name)
        assert all(entry.names[0] in text for entry in layout.entries.values())
        assert layout.where in text
    with pytest.raises(InputError, match="layout must be one of 'flickr8k'"):
        describe_layout("flickr")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", LAYOUTS)
def test_read_by_name(tmp_path: Path, name: Layout) -> None:
    names = WRITERS[name](tmp_path)
    table = read_layout(name, tmp_path)
    assert not table.bad
    assert np.unique(table.rows).tolist() == list(range(60))
    if name == "reed":
        np.testing.assert_array_equal(table.pairs.column("image")[::2], features())
    else:
        found = table.pairs.column("image")[:]
        assert all(Path(path).is_file() for path in found)
        ends = dict.fromkeys(found)
        assert all(path.endswith(end) for path, end in zip(ends, names, strict=True))
    once = read_layout(name, tmp_path, captions="concatenate")
    assert len(once.pairs) == 60
    drawn = read_layout(name, tmp_path, listed=False)
    assert drawn.split is None
    assert len(drawn.pairs) == len(table.pairs)


@pytest.mark.parametrize("name", LAYOUTS)
def test_sizes_of_the_parts(tmp_path: Path, name: Layout) -> None:
    WRITERS[name](tmp_path)
    np.save(tmp_path / "f.npy", features())
    for captions in ("separate", "concatenate"):
        given = {"x": "image=f.npy", "folder": str(tmp_path), "captions": captions}
        data = read_source(Source.from_mapping({**source(name, tmp_path).as_dict(), **given}))
        parts = [images_of(data, part) for part in ("train", "valid", "test")]
        assert tuple(map(len, parts)) == SIZES[name]
        assert len(set.union(*parts)) == 60
        assert data.listed == (name not in ("flickr30k", "iapr-tc12"))


@pytest.mark.parametrize("name", LAYOUTS)
def test_each_missing_entry_is_named(tmp_path: Path, name: Layout) -> None:
    WRITERS[name](tmp_path / "whole")
    found = check_layout(name, tmp_path / "whole")
    for key, entry in PUBLISHED[name].entries.items():
        if not entry.needed:
            continue
        folder = tmp_path / key
        shutil.copytree(tmp_path / "whole", folder)
        path = folder / found[key].relative_to(tmp_path / "whole")
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        with pytest.raises(InputError) as error:
            check_layout(name, folder)
        text = str(error.value)
        # The outer folder of the archive of Flickr8k's images is there, but empty.
        (shown,) = re.findall("^  (?:missing|empty) +(.*?)  ", text, re.M)
        assert path.name in shown
        needed = sum(entry.needed for entry in PUBLISHED[name].entries.values())
        assert len(re.findall("^  found  ", text, re.M)) >= needed - 1
        assert PUBLISHED[name].where in text
        assert ("--files" in text) == key.startswith("images")


def test_the_message(tmp_path: Path) -> None:
    touch(tmp_path, "flickr30k-images/1.txt", "entities/train.txt")
    with pytest.raises(InputError) as error:
        read_layout("flickr30k", tmp_path)
    lines = [re.sub("   +", "  ", line.strip()) for line in str(error.value).split("\n")]
    assert lines == [
        f"{tmp_path}: some files are missing; expected Flickr30k (Young et al. 2014).",
        "missing  results_20130124.token  captions: NAME.jpg#NUMBER, tab, caption",
        "found  entities/train.txt  names of training images (optional)",
        "not there  val.txt  names of validation images (optional)",
        "not there  test.txt  names of test images (optional)",
        "empty  flickr30k-images/ or flickr30k_images/  images",
        "These may also lie one folder deeper.",
        "If the images lie elsewhere, say where the image files are (--files FOLDER), or give "
        "their features (--x image=features.npy; of `ccal reproduce` --features features.npy).",
        f"Published: {PUBLISHED['flickr30k'].where}.",
    ]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All sets, each in the folder of its name."""
    root = tmp_path_factory.mktemp("whole")
    for name, write in WRITERS.items():
        write(root / name)
    return root


@settings(max_examples=40)
@given(st.sampled_from(["flickr8k", "flickr30k", "karpathy", "coco"]), st.floats(0, 1), st.binary())
def test_half_written_captions(whole: Path, name: Layout, share: float, end: bytes) -> None:
    """A file that breaks off, or ends in noise, is read or refused in words."""
    path = check_layout(name, whole / name)["captions"]
    before = path.read_bytes()
    path.write_bytes(before[: int(share * len(before))] + end)
    try:
        for strict in (True, False):
            with suppress(InputError):
                assert len(read_layout(name, whole / name, strict=strict).pairs) <= 121
    finally:
        path.write_bytes(before)


def test_images_elsewhere(tmp_path: Path) -> None:
    for name in ("coco", "flickr8k"):
        WRITERS[name](tmp_path / name)
    shutil.move(tmp_path / "coco" / "train2014", tmp_path / "photos" / "train2014")
    shutil.move(tmp_path / "coco" / "val2014", tmp_path / "photos" / "val2014")
    for files in (tmp_path / "photos", tmp_path / "photos" / "train2014"):
        assert len(read_layout("coco", tmp_path / "coco", files=files).pairs) == 120
    with pytest.raises(InputError, match="no such folder"):
        read_layout("flickr8k", tmp_path / "flickr8k", files=tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"60 problems among 60 images(.|\n)*--skip-bad-rows"):
        read_layout("flickr8k", tmp_path / "flickr8k", files=tmp_path / "photos")


def test_two_data_sets_in_one_folder(tmp_path: Path) -> None:
    for name in ("birds", "flowers"):
        WRITERS["reed"](tmp_path / name)
    with pytest.raises(InputError, match="has birds/text_c10 and flowers/text_c10; give the"):
        read_layout("reed", tmp_path)
    assert len(read_layout("reed", tmp_path / "birds").pairs) == 120


def test_the_folder_of_the_texts_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    WRITERS["iapr-tc12"](tmp_path)
    inner = tmp_path / "annotations_complete_eng"
    monkeypatch.chdir(inner)
    for folder in (inner, "."):
        assert len(read_layout("iapr-tc12", folder).pairs) == 60


def test_karpathy_by_file(tmp_path: Path) -> None:
    karpathy(tmp_path)
    path = tmp_path / "dataset_flickr8k.json"
    assert len(read_layout("karpathy", path).pairs) == 120
    (tmp_path / "other").mkdir()
    for name, images in (("dataset_flickr30k.json", "flickr30k-"), ("mine.json", "Flicker8k_")):
        other = shutil.copy(path, tmp_path / "other" / name)
        with pytest.raises(InputError, match=f"missing +{images}"):
            check_layout("karpathy", other)
    shutil.copy(path, tmp_path / "dataset_flickr30k.json")
    with pytest.raises(InputError, match=r"8k\.json and dataset_flickr30k\.json; give one of them"):
        read_layout("karpathy", tmp_path)
    with pytest.raises(InputError, match=r"missing +dataset_flickr8k\.json or"):
        check_layout("karpathy", tmp_path / "Flicker8k_Dataset")


def test_lists_of_flickr30k_entities(tmp_path: Path) -> None:
    names = WRITERS["flickr30k"](tmp_path)
    (tmp_path / "flickr30k_entities").mkdir()
    for part, some in (("train", names[:30]), ("val", names[30:35]), ("test", names[35:45])):
        listed = "\n".join(name.removesuffix(".jpg") for name in some)
        (tmp_path / "flickr30k_entities" / f"{part}.txt").write_text(listed)
    table = read_layout("flickr30k", tmp_path, captions="concatenate")
    assert split_of(table) == ["train"] * 30 + ["valid"] * 5 + ["test"] * 10


def test_the_papers_sizes_for_a_large_set(tmp_path: Path) -> None:
    n = 11_000
    lines = (f"{number}.jpg#0\tpicture number {number}\n" for number in range(n))
    (tmp_path / "results_20130124.token").write_text("".join(lines))
    np.save(tmp_path / "f.npy", np.arange(2 * n, dtype=np.float32).reshape(n, 2))
    given = {**source("flickr30k", tmp_path).as_dict(), "x": f"image={tmp_path / 'f.npy'}"}
    split = read_source(Source(**given)).split
    assert (len(split.train), len(split.valid), len(split.test)) == (9000, 1000, 1000)
    split = read_source(Source(**given, valid=0.01, test=7)).split
    assert (len(split.valid), len(split.test)) == (110, 7)


def test_names_beside_the_features(tmp_path: Path) -> None:
    names = WRITERS["coco"](tmp_path)
    order = np.random.default_rng(0).permutation(60)
    np.savez(tmp_path / "f.npz", a=features()[order], b=np.ones((2, 2)))
    lines = [f"{names[row]}\n" for row in order]
    (tmp_path / "f.txt").write_text("".join(lines))
    options = {**source("coco", tmp_path).as_dict(), "x": f"image={tmp_path / 'f.npz'}:a"}
    pairs = read_source(Source(**options)).pairs
    np.testing.assert_array_equal(pairs.column("image")[::2], features())
    # A bad row is that of the array, not of the data set.
    bad = features()[order]
    bad[0] = np.nan
    np.savez(tmp_path / "f.npz", a=bad)
    with pytest.raises(InputError, match="12 NaN or infinite values in 1 of 60 rows"):
        read_source(Source(**options))
    kept = read_source(Source(**{**options, "skip_bad_rows": True})).pairs
    np.testing.assert_array_equal(
        kept.column("image")[::2], np.delete(features(), order[0], axis=0)
    )
    (tmp_path / "f.txt").write_text("".join(lines[1:]))
    with pytest.raises(InputError, match="features has 60 rows, but names has 59"):
        read_source(Source(**options))


def test_a_few_missing_images_of_iapr_tc12(tmp_path: Path) -> None:
    WRITERS["iapr-tc12"](tmp_path)
    (tmp_path / "images" / "00" / "7.jpg").unlink()
    with pytest.raises(InputError, match=r"1 problem among 60 images(.|\n)*--skip-bad-rows"):
        read_layout("iapr-tc12", tmp_path)
    assert len(read_layout("iapr-tc12", tmp_path, strict=False).pairs) == 59
    for number in range(1000, 1050):  # now one of 110 is missing, less than 1%
        for path in ("annotations_complete_eng/01/{}.eng", "images/01/{}.jpg"):
            new = tmp_path / path.format(number)
            text = (tmp_path / path.format(31)).read_bytes()
            new.write_bytes(text.replace(b"01/31", f"01/{number}".encode()))
    assert read_layout("iapr-tc12", tmp_path).bad.total == 1


def test_training_classes_of_reed(tmp_path: Path) -> None:
    WRITERS["reed"](tmp_path)
    table = read_layout("reed", tmp_path, train_classes="trainval")
    assert sorted(set(split_of(table))) == ["test", "train"]
    assert len(set(label_of(table))) == 20
    data = read_source(source("reed", tmp_path, train_classes="trainval", valid=3, split_seed=1))
    labels = [set(data.part(part).label) for part in ("train", "valid", "test")]  # type: ignore[arg-type]
    assert list(map(len, labels)) == [13, 3, 4]
    assert labels[2] == {f"class_{number:05}" for number in range(17, 21)}
    assert read_source(source("reed", tmp_path)).split.valid.tolist() == list(range(72, 96))
    (tmp_path / "trainvalclasses.txt").unlink()
    with pytest.raises(InputError, match=r"needs trainvalclasses\.txt"):
        read_source(source("reed", tmp_path, train_classes="trainval"))


def test_where_training_classes_do_not_belong(tmp_path: Path) -> None:
    for name, more in (("coco", {}), ("reed", {"split_by": "label"})):
        with pytest.raises(InputError, match="chooses among the class lists"):
            source(name, tmp_path, train_classes="trainval", **more)  # type: ignore[arg-type]
    np.save(tmp_path / "x.npy", features())
    given = Source(x=f"{tmp_path}/x.npy", y=f"y={tmp_path}/x.npy", train_classes="trainval")
    with pytest.raises(InputError, match="belongs to the layout 'reed'"):
        read_source(given)


def test_features_of_reed_that_do_not_fit(tmp_path: Path) -> None:
    WRITERS["reed"](tmp_path)
    texts, path = tmp_path / "text_c10", tmp_path / "images" / "class_00002.t7"
    cases: dict[str, NDArray[Any]] = {
        "shape (2, 12); expected (3, features) or": np.ones((2, 12), dtype=np.float32),
        "shape (3,); expected": np.ones(3),
        "7 features, but the classes before have 12": np.ones((3, 7)),
    }
    for message, array in cases.items():
        write_t7(path, tensor(array))
        with pytest.raises(InputError, match=re.escape(f"{path}: {message}")):
            read_reed_features(texts, tmp_path / "images")
    flat = np.full((3, 12), np.nan)
    write_t7(path, tensor(flat))
    with pytest.raises(InputError, match="36 NaN or infinite values in 3 of 60 rows"):
        read_source(source("reed", tmp_path))
    assert len(read_source(source("reed", tmp_path, skip_bad_rows=True)).pairs) == 114
    path.unlink()
    with pytest.raises(InputError, match=r"class_00002\.t7: no such file"):
        read_layout("reed", tmp_path)


def test_images_go_before_torch7_files(tmp_path: Path) -> None:
    names = WRITERS["reed"](tmp_path)
    touch(tmp_path / "CUB_200_2011" / "images", *names)
    image, _ = read_layout("reed", tmp_path).pairs[0]
    assert image == str(tmp_path / "CUB_200_2011" / "images" / names[0])
