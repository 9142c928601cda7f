from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccal.data import Pairs, Rows, duplicates
from ccal.data.arrays import chunks
from ccal.data.duplicates import item_numbers

Words = st.lists(st.text("ab ", max_size=2), max_size=40)


def check_numbers(numbers: np.ndarray, keys: list[object]) -> None:
    """Equal numbers for equal keys only, in the order of first occurrence."""
    assert numbers.dtype == np.int64
    seen = list(dict.fromkeys(keys))
    assert numbers.tolist() == [seen.index(key) for key in keys]


@settings(deadline=None)
@given(texts=Words, data=st.data())
def test_equal_texts_have_one_number_in_every_subset(texts: list[str], data: st.DataObject) -> None:
    rows = Rows(texts)
    check_numbers(rows.items(), list(texts))
    index = data.draw(
        st.lists(st.integers(0, len(texts) - 1), max_size=20) if texts else st.just([])
    )
    assert rows.select(index).items().tolist() == rows.items()[np.array(index, int)].tolist()


@settings(deadline=None)
@given(
    values=st.lists(st.integers(0, 3), min_size=1, max_size=60),
    shape=st.sampled_from([(), (1,), (3,), (2, 2)]),
    dtype=st.sampled_from([np.float32, np.float64, np.float16, np.int64, np.uint8, np.bool_]),
    fortran=st.booleans(),
)
def test_equal_rows_of_arrays_have_one_number(
    values: list[int], shape: tuple[int, ...], dtype: type, fortran: bool
) -> None:
    codes = np.array(values).reshape(-1, *[1] * len(shape)) * np.ones(shape, int)
    array: np.ndarray = np.asarray(codes.astype(dtype), order="F" if fortran else "C")
    check_numbers(item_numbers(array, files=False), [row.tobytes() for row in array])


def test_an_array_larger_than_a_piece_is_compared_across_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", rng.normal(size=(50, 4))[rng.integers(0, 50, 200)])
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    pieces: list[int] = []

    def small(array: np.ndarray, chunk_bytes: int = 0) -> object:
        for start, rows in chunks(array, 1000):
            pieces.append(rows.nbytes)
            yield start, rows

    monkeypatch.setattr(duplicates, "chunks", small)
    check_numbers(item_numbers(mapped, files=False), [row.tobytes() for row in mapped])
    assert len(pieces) > 5
    assert max(pieces) <= 1000


def test_files_are_the_same_by_path_or_by_bytes(tmp_path: Path) -> None:
    names = ["a", "b", "copy of a", "as long as a"]
    for name, content in zip(names, (b"12", b"1", b"12", b"34"), strict=True):
        Path(tmp_path, name).write_bytes(content)
    paths = [str(tmp_path / name) for name in [*names, "a", "missing", "missing"]]
    assert Rows(paths, files=True).items().tolist() == [0, 1, 0, 2, 0, 3, 3]
    # As texts, only the paths are compared.
    assert Rows(paths).items().tolist() == [0, 1, 2, 3, 0, 4, 4]


def test_a_file_that_cannot_be_read_is_like_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    paths = [str(tmp_path / name) for name in "ab"]
    for path in paths:
        Path(path).write_bytes(b"same")
    monkeypatch.setattr("hashlib.file_digest", refuse)
    assert item_numbers([*paths, *paths], files=True).tolist() == [0, 1, 0, 1]


def test_only_files_of_one_size_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for size in range(1, 5):
        Path(tmp_path, str(size)).write_bytes(b"a" * size)
    monkeypatch.setattr("hashlib.file_digest", lambda *_: pytest.fail("a file was read"))
    paths = [str(tmp_path / name) for name in "1234"]
    assert item_numbers(paths * 2, files=True).tolist() == [0, 1, 2, 3] * 2


def test_pairs_compare_their_items_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(*args: object, **options: object) -> np.ndarray:
        calls.append(args)
        return item_numbers(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("ccal.data.pairs.item_numbers", counted)
    array = np.array([[1.0], [2.0], [1.0]])
    # The photo of a list of captions is one row of the array, repeated.
    pairs = Pairs({"photo": Rows(array, [0, 0, 1, 2]), "text": list("abca")})
    part = pairs[[3, 1]]
    assert part.items("photo").tolist() == [0, 0]
    assert pairs.items("photo").tolist() == [0, 0, 1, 0]
    assert part[[0]].items("photo").tolist() == [0]
    assert len(calls) == 1
    assert part.items("text").tolist() == [0, 1]
    assert pairs[::-1][1:].items("text").tolist() == [2, 1, 0]
    assert len(calls) == 2
