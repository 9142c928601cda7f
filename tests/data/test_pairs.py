from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ccal.data import Pairs, Rows
from ccal.errors import InputError


def small() -> Pairs:
    image = np.arange(10.0).reshape(5, 2)
    return Pairs(
        {"image": image, "text": list("abcde")}, label=[0, 0, 1, 1, 2], group=list("vwxyz")
    )


def test_a_subset_keeps_pairs_labels_and_groups_together() -> None:
    pairs = small()
    mask = np.array([False, True, False, True, True])
    for index in ([1, 3, 4], np.array([1, 3, 4]), mask, slice(1, None, 1)):
        some = pairs[index]
        rows = list(range(5))[index] if isinstance(index, slice) else [1, 3, 4]
        assert some.names == ("image", "text")
        assert some.column("text")[:] == ["abcde"[i] for i in rows]
        assert some.column("image")[:].tolist() == [[2 * i, 2 * i + 1] for i in rows]
        assert some.label is not None
        assert some.group is not None
        assert some.label.tolist() == [[0, 0, 1, 1, 2][i] for i in rows]
        assert some.group.tolist() == ["vwxyz"[i] for i in rows]


def test_subsets_of_subsets_and_repeated_rows() -> None:
    pairs = small()[[4, 2, 0]][[2, 2, 0]]
    assert pairs.column("text")[:] == ["a", "a", "e"]
    assert pairs.column("text")[[1, -1]] == ["a", "e"]
    assert pairs[-1][1] == "e"
    assert pairs.column("image")[0].tolist() == [0, 1]


def test_an_empty_choice_is_an_empty_subset() -> None:
    none = small()[[]]
    assert len(none) == 0
    assert none.column("text")[:] == []
    assert none.column("image")[:].shape == (0, 2)


def test_single_pairs_and_out_of_range() -> None:
    assert [small()[i][1] for i in range(5)] == list("abcde")
    with pytest.raises(IndexError):
        small()[[5]]
    with pytest.raises(IndexError):
        small()[[0, 1]][2]


def test_memory_maps_are_shared_not_copied(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(12, dtype=np.float32).reshape(6, 2))
    x = np.load(tmp_path / "x.npy", mmap_mode="r")
    pairs = Pairs({"x": x, "y": ["t"] * 6})
    some = pairs[[5, 1]][[1]]
    assert some.column("x").source is x
    assert some.column("x").shape == (1, 2)
    assert np.shares_memory(pairs.column("x")[1:3], x)
    read = some.column("x")[:]
    assert type(read) is np.ndarray
    assert read.tolist() == [[2, 3]]


def test_the_repr_says_what_there_is() -> None:
    assert repr(small()) == "Pairs(5 rows: image (5, 2) float64, text; label; group)"


def test_bad_columns_are_refused() -> None:
    x = np.ones((3, 2))
    with pytest.raises(InputError, match=r"two modalities, got 1: \['x'\]"):
        Pairs({"x": x})
    with pytest.raises(InputError, match="image has 3 rows and text has 2"):
        Pairs({"image": x, "text": ["a", "b"]})
    with pytest.raises(InputError, match="text must be a numeric NumPy array or a list of texts"):
        Pairs({"x": x, "text": ["a", "b", 3]})  # type: ignore[list-item]
    with pytest.raises(InputError, match="got ndarray of object"):
        Pairs({"x": x, "y": np.array([None, 1, "a"], dtype=object)})
    with pytest.raises(InputError, match=r"label must have one value a row, shape \(3,\)"):
        Pairs({"x": x, "y": x}, label=[1, 2])
    with pytest.raises(InputError, match=r"No modality 'z'; there are \['x', 'y'\]"):
        Pairs({"x": x, "y": x}).column("z")


def test_rows_tell_texts_from_numbers() -> None:
    assert Rows(["a"]).is_text
    assert Rows(["a", "b"], [1]).shape == (1,)
    assert not Rows(np.ones((2, 3))).is_text
