"""Where pairs come from: names, files, columns, splits and fingerprints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccal.data import Source, View, read_source
from ccal.errors import InputError


@pytest.mark.parametrize(
    ("text", "table", "expected"),
    [
        ("a/images.npy", False, ("images", "a/images.npy", None, None)),
        ("image=a.npz:k 1", False, ("image", "a.npz", "k 1", None)),
        ("a=b/c=d.npy", False, ("a", "b/c=d.npy", None, None)),
        ("x/a=b.npy", False, ("a_b", "x/a=b.npy", None, None)),
        ("res.net 50.npy", False, ("res_net_50", "res.net 50.npy", None, None)),
        ("caption", True, ("caption", None, None, "caption")),
        ("text=the caption", True, ("text", None, None, "the caption")),
        ("image=f.npy", True, ("image", "f.npy", None, None)),
        ("pairs.csv", False, ("pairs", "pairs.csv", None, None)),
    ],
)
def test_views(text: str, table: bool, expected: tuple[Any, ...]) -> None:
    view = View.of(text, table=table)
    assert (view.name, view.file, view.key, view.column) == expected


@given(st.text(min_size=1), st.booleans())
def test_every_view_has_a_name(text: str, table: bool) -> None:
    view = View.of(text, table=table)
    assert view.name
    assert "." not in view.name  # torch allows no dots in names of modules


@pytest.fixture
def files(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", rng.normal(size=(40, 3)))
    np.save(tmp_path / "y.npy", rng.normal(size=(40, 2)))
    rows = [f"word{i},g{i // 2},{'test' if i < 10 else 'train'}" for i in range(40)]
    (tmp_path / "t.csv").write_text("\n".join(["text,thing,part", *rows]) + "\n")
    return tmp_path


def facts(files: Path, **changes: Any) -> dict[str, Any]:
    values = {"x": "x.npy", "y": "y.npy", "folder": str(files), **changes}
    return read_source(Source.from_mapping(values)).facts()


def test_the_same_data_have_the_same_fingerprints(files: Path) -> None:
    assert facts(files) == facts(files)
    np.save(files / "copy.npy", np.load(files / "x.npy"))
    assert facts(files, x="x=copy.npy") == facts(files)


def test_any_change_shows(files: Path) -> None:
    first = facts(files)
    assert facts(files, split_seed=1)["split_sha256"] != first["split_sha256"]
    assert facts(files, split_seed=1)["data_sha256"] == first["data_sha256"]
    x = np.load(files / "x.npy")
    for changed in (x.astype(np.float32), x[::-1], np.nextafter(x, 9), x.reshape(40, 3, 1)):
        np.save(files / "x.npy", changed)
        assert facts(files)["data_sha256"] != first["data_sha256"]


def test_texts_do_not_run_into_each_other(files: Path) -> None:
    hashes = set()
    for texts in (["ab", "c"], ["a", "bc"]):
        lines = [f"{texts[i % 2]}" for i in range(40)]
        (files / "t.csv").write_text("\n".join(["text", *lines]) + "\n")
        hashes.add(facts(files, table="t.csv", y="text")["data_sha256"])
    assert len(hashes) == 2


def test_validation_pairs_come_from_train_if_the_column_has_none(files: Path) -> None:
    source = Source(
        x="x.npy", y="text", table="t.csv", folder=str(files), split_column="part", group="thing"
    )
    data = read_source(source)
    assert data.split.test.tolist() == list(range(10))
    assert len(data.split.valid) == 4  # two of fifteen groups
    parts = [set(data.part(name).group) for name in ("train", "valid", "test")]  # type: ignore[arg-type]
    assert not parts[0] & parts[1]
    assert sum(map(len, (data.split.train, data.split.valid, data.split.test))) == 40


def test_rows_with_nan_go_with_their_partners(files: Path) -> None:
    x = np.load(files / "x.npy")
    x[[4, 7]] = np.nan
    np.save(files / "x.npy", x)
    table = Source(x="x.npy", y="text", table="t.csv", folder=str(files), skip_bad_rows=True)
    kept = read_source(table).pairs
    assert len(kept) == 38
    assert kept.column("text")[4] == "word5"
    np.testing.assert_array_equal(kept.column("x")[4], x[5])


def test_files_that_moved_are_found_where_one_stands(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source(x="x.npy", y="y.npy", folder="/gone")
    with pytest.raises(InputError, match=r"/gone/x\.npy: no such file"):
        read_source(source)
    monkeypatch.chdir(files)
    assert len(read_source(source).pairs) == 40


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"x": "a.npy"}, "The data lack y"),
        ({"x": "a.npy", "y": ""}, "y must be text, got y=''"),
        (
            {"x": "a.npy", "y": "b.npy", "valid": True},
            "valid must be a finite number of at least 0",
        ),
        ({"x": "a.npy", "y": "b.npy", "split_seed": 0.5}, "split_seed must be a whole number"),
        (
            {"x": "a.npy", "y": "b.npy", "skip_bad_rows": 1},
            "skip_bad_rows must be one of True, False",
        ),
        ({"x": "a.npy", "y": "b.npy", "group": "g"}, "group belongs to a table"),
        ({"x": "a.npy", "y": "c/a.npy"}, "x and y are both called 'a'"),
    ],
)
def test_bad_values_are_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Source.from_mapping(values)


def test_classes_can_be_kept_apart(tmp_path: Path) -> None:
    np.save(tmp_path / "photos.npy", np.random.default_rng(0).normal(size=(60, 3)))
    lines = ["caption,bird", *(f"text {i},bird {i % 6}" for i in range(60))]
    (tmp_path / "pairs.csv").write_text("\n".join(lines) + "\n")
    options: dict[str, Any] = {"x": "photo=photos.npy", "y": "caption", "table": "pairs.csv"}
    options |= {"folder": str(tmp_path), "label": "bird", "valid": 1, "test": 1}
    data = read_source(Source(split_by="label", **options))
    labels = (data.part(name).label for name in ("train", "valid", "test"))
    parts = [set(part.tolist()) for part in labels if part is not None]
    assert [len(part) for part in parts] == [4, 1, 1]
    assert len(set.union(*parts)) == 6
    with pytest.raises(InputError, match="split_by must be"):
        Source.from_mapping({**options, "split_by": "colour"})


@pytest.mark.parametrize(
    ("lists", "sizes"),
    [
        ({"train": "ab", "val": "c", "test": "d"}, (2, 1, 1)),
        ({"train": "ab", "trainval": "abc", "val": "c", "test": "d"}, (2, 1, 1)),
        ({"trainval": "abc", "test": "d"}, (2, 1, 1)),  # the validation class is drawn
        ({"train": "abc", "test": "d"}, (2, 1, 1)),
        ({}, (2, 1, 1)),
    ],
)
def test_lists_of_classes(tmp_path: Path, lists: dict[str, str], sizes: tuple[int, ...]) -> None:
    for name in "abcd":
        (tmp_path / "text_c10" / name).mkdir(parents=True)
        for number in (1, 2):
            (tmp_path / "text_c10" / name / f"{number}.txt").write_text(f"bird {name}\nthe {name}")
    for part, names in lists.items():
        (tmp_path / f"{part}classes.txt").write_text("\n".join(names))
    np.save(tmp_path / "x.npy", np.arange(8)[:, None])
    for folder in (tmp_path, tmp_path / "text_c10"):
        source = Source(
            x="image=../x.npy" if folder != tmp_path else "image=x.npy",
            y="text",
            table=".",
            layout="reed",
            folder=str(folder),
            valid=1,
            test=1,
        )
        data = read_source(source)
        labels = [set(data.part(part).label) for part in ("train", "valid", "test")]  # type: ignore[arg-type]
        assert tuple(map(len, labels)) == sizes
        assert len(set.union(*labels)) == 4
        if lists:
            assert labels[2] == {"d"}
        assert data.pairs.column("image")[:].ravel().tolist() == np.repeat(np.arange(8), 2).tolist()
