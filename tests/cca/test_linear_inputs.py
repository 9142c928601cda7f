"""Inputs and files of `CCA`: what it takes, what it refuses, and saving."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
import torch
from sklearn.base import clone
from sklearn.datasets import load_linnerud

from ccal.cca.linear import CCA
from ccal.errors import InputError, NotFittedError
from tests.cca.test_linear import assert_same, pairs


def test_integers_are_samples_too() -> None:
    X, Y = load_linnerud(return_X_y=True)
    assert_same(CCA().fit(X.astype(np.int32), Y), CCA().fit(X, Y))
    assert_same(CCA().fit(torch.from_numpy(X).int(), Y), CCA().fit(X, Y))


def test_parameters_are_checked_by_fit_not_before() -> None:
    X, Y = pairs()
    assert CCA().set_params(ridge=-1.0).get_params()["ridge"] == -1.0
    bad: dict[str, list[Any]] = {
        "n_components": [0, -1, 2.5, "3", True, 10],
        "ridge": [-1.0, "Auto", (1.0,), (1.0, -1.0), np.nan, None, np.inf],
        "power": [-0.5, "big", None],
        "validation_fraction": [0, 1, 1.5, "half"],
        "random_state": [-1, 0.5],
        "chunk_rows": [0, 1.5],
    }
    for name, values in bad.items():
        for value in values:
            with pytest.raises(InputError, match=name):
                CCA().set_params(**{name: value}).fit(X, Y)
    with pytest.raises(InputError, match="no parameter 'rigde'"):
        CCA().set_params(rigde=1)
    with pytest.raises(InputError, match="n_components"):
        CCA(9).fit(X[:9], Y[:9])


def test_bad_data_is_refused() -> None:
    X, Y = pairs()
    with pytest.raises(InputError, match="X has 400 rows and Y has 399"):
        CCA().fit(X, Y[:-1])
    with pytest.raises(InputError, match=r"X must be a matrix.*\(400,\).*reshape"):
        CCA().fit(X[:, 0], Y)
    with pytest.raises(InputError, match="at least 2 samples, got 1"):
        CCA().fit(X[:1], Y[:1])
    with pytest.raises(InputError, match="at least 2 samples, got 0"):
        CCA().fit(X[:0], Y[:0])
    with pytest.raises(InputError, match=r"0 feature\(s\) \(shape=\(400, 0\)\)"):
        CCA().fit(X[:, :0], Y)
    with pytest.raises(InputError, match="real numbers"):
        CCA().fit(X.astype(complex), Y)
    with pytest.raises(InputError, match="real numbers"):
        CCA().fit([["a", "b"]] * 3, Y[:3])
    with pytest.raises(InputError, match=r"X is a sparse matrix.*toarray"):
        CCA().fit(scipy.sparse.csr_array(X), Y)
    cca = CCA().fit(X, Y)
    with pytest.raises(InputError, match="Y has 12 features, but CCA is expecting 9"):
        cca.transform(X, X)
    with pytest.raises(InputError, match="X has 9 features"):
        cca.partial_fit(Y, Y)


@pytest.mark.parametrize(
    ("shape", "ridge"), [((400, 12), 1.0), ((400, 12), "auto"), ((8, 12), 1.0)]
)
def test_missing_values_are_counted(shape: tuple[int, int], ridge: Any) -> None:
    X, Y = pairs(*shape)
    cca = CCA(ridge=1.0).fit(X, Y)
    Y[3, 2], Y[3, 5], Y[5, 0] = np.nan, np.inf, -np.inf
    with pytest.raises(InputError, match=f"Y contains 3 NaN.*in 2 of {shape[0]} rows"):
        CCA(ridge=ridge, chunk_rows=4).fit(X, Y)
    with pytest.raises(InputError, match="Y contains 3 NaN"):
        cca.transform(X, Y)
    with pytest.raises(InputError, match="X contains 3 NaN"):
        CCA().fit(Y, X)
    with pytest.raises(InputError, match="overflow"):
        CCA().fit(X * 1e200, X)


def test_nothing_is_known_before_fit(tmp_path: Path) -> None:
    X, Y = pairs()
    cca = CCA()
    for call in (
        lambda: cca.transform(X),
        lambda: cca.transform(None, Y),
        lambda: cca.score(X, Y),
        lambda: cca.save(tmp_path / "c"),
    ):
        with pytest.raises(NotFittedError, match="fit"):
            call()
    assert not hasattr(cca, "correlations_")
    assert not hasattr(cca, "n_features_in_")
    assert not hasattr(cca, "other")
    with pytest.raises(InputError, match="at least 2 samples, got 1"):
        CCA().partial_fit(X[:1], Y[:1]).transform(X)


def test_a_failed_fit_leaves_the_old_one() -> None:
    X, Y = pairs()
    cca = CCA().fit(X, Y)
    before = cca.transform(X)
    with pytest.raises(InputError):
        cca.partial_fit(X * np.nan, Y)
    with pytest.raises(InputError):
        cca.fit(X * np.nan, Y)
    np.testing.assert_array_equal(cca.transform(X), before)


def test_save_and_load(tmp_path: Path) -> None:
    X, Y = pairs()
    for cca in (
        CCA(3, ridge=(0.1, 2), power=0.5, random_state=None).fit(X, Y),
        CCA().set_params(n_components=np.int64(3), ridge=np.float32(0.5)).partial_fit(X, Y),
        CCA(ridge="auto", power="auto").fit(X, Y),
        CCA.for_retrieval().fit(X[:8], Y[:8]),
    ):
        path = tmp_path / "model.any"
        cca.save(path)
        again = CCA.load(path)
        assert again.get_params() == cca.get_params()
        assert again.search_ == cca.search_
        assert_same(again, cca, atol=0)
        np.testing.assert_array_equal(again.transform(X), cca.transform(X))
        assert clone(again).get_params() == cca.get_params()
        with pytest.raises(InputError, match="partial_fit cannot"):
            again.set_params(ridge=1.0, power=1.0).partial_fit(X, Y)
    assert [p.name for p in tmp_path.iterdir()] == ["model.any"], "no temporary file stays"


def test_a_failed_save_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y = pairs()
    path = tmp_path / "model"
    CCA(2).fit(X, Y).save(path)
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space"):
        CCA(3).fit(X, Y).save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_broken_and_foreign_files_are_named_and_refused(tmp_path: Path) -> None:
    X, Y = pairs()
    good = tmp_path / "good"
    CCA(3).fit(X, Y).save(good)
    content = good.read_bytes()
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 0xFF
    np.savez(tmp_path / "foreign.npz", a=np.zeros(3))
    np.savez(tmp_path / "other.npz", header=np.array('{"kind": "ccal.Index/1"}'))
    np.save(tmp_path / "array.npy", X)
    np.save(tmp_path / "pickle.npy", np.array([{}], dtype=object), allow_pickle=True)
    files = {
        "empty": b"",
        "text": b"hello",
        "half": content[: len(content) // 2],
        "cut": content[:-1],
        "flipped": bytes(flipped),
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    names = [*files, "foreign.npz", "other.npz", "array.npy", "pickle.npy", "missing"]
    for name in names:
        with pytest.raises(InputError, match=name):
            CCA.load(tmp_path / name)


def test_every_damaged_byte_is_noticed_or_harmless(tmp_path: Path) -> None:
    X, Y = pairs(dim_x=3, dim_y=2)
    path = tmp_path / "model"
    cca = CCA(1).fit(X, Y)
    cca.save(path)
    content = path.read_bytes()
    for position in range(0, len(content), 7):
        damaged = bytearray(content)
        damaged[position] ^= 0xFF
        path.write_bytes(damaged)
        try:
            again = CCA.load(path)
        except InputError:
            continue
        assert_same(again, cca, atol=0)


def test_files_of_earlier_versions_open(tmp_path: Path) -> None:
    X, Y = pairs()
    # The settings for retrieval were the defaults.
    cca = CCA(3, ridge=1.0, power=1.0).fit(X, Y)
    cca.save(tmp_path / "new")
    with np.load(tmp_path / "new") as file:
        arrays = dict(file)
    header = json.loads(str(arrays.pop("header")))
    header["params"]["verbose"] = True
    with (tmp_path / "old").open("wb") as out:
        np.savez(out, header=np.array(json.dumps(header)), **arrays)
    again = CCA.load(tmp_path / "old")
    assert_same(again, cca, atol=0)
    assert (again.ridge, again.power, again.power_) == (1.0, 1.0, 1.0)
    np.testing.assert_array_equal(again.transform(X), cca.transform(X))


def test_data_frames_of_mixed_columns() -> None:
    pandas = pytest.importorskip("pandas")
    X, Y = pairs()
    frame = pandas.DataFrame({"a": X[:, 0], "b": X[:, 1] > 0})
    expected = CCA(1).fit(np.column_stack((X[:, 0], X[:, 1] > 0)), Y)
    np.testing.assert_allclose(CCA(1).fit(frame, Y).x_projection_, expected.x_projection_)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (None, "X is missing. Expected array-like.*got None"),
        ([[1, 2], [3]], "X must be a matrix of real numbers"),
        (torch.eye(400).to_sparse(), r"X is a sparse tensor; pass X.to_dense\(\)"),
    ],
)
def test_inputs_that_are_no_matrix_are_refused(X: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        CCA().fit(X, pairs()[1])


def test_score_needs_rows() -> None:
    X, Y = pairs()
    with pytest.raises(InputError, match="got 0 rows"):
        CCA(2).fit(X, Y).score(X[:0], Y[:0])


def test_masked_values_are_refused() -> None:
    X, Y = pairs()
    with pytest.raises(InputError, match="X has masked values"):
        CCA().fit(np.ma.masked_greater(X, 4), Y)
    CCA().fit(np.ma.masked_array(X), Y)


def test_one_pair_is_not_yet_a_fit() -> None:
    X, Y = pairs()
    cca = CCA().partial_fit(X[:1], Y[:1])
    assert not hasattr(cca, "correlations_")
    assert hasattr(cca.partial_fit(X[1:], Y[1:]), "correlations_")
