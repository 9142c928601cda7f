"""`CCA.predict` against least squares and ridge regression, solved by other means."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ccal.cca.linear import CCA
from ccal.errors import InputError, NotFittedError
from tests.cca.test_linear import Array, pairs


def regression(X: Array, Y: Array, new: Array, penalty: float = 0.0) -> Array:
    """Prediction for new rows by least squares with an intercept; the penalty spares it."""
    mean_x, mean_y, d = X.mean(0), Y.mean(0), X.shape[1]
    left = np.vstack([X - mean_x, np.sqrt(penalty) * np.eye(d)])
    right = np.vstack([Y - mean_y, np.zeros((d, Y.shape[1]))])
    coefficients: Array = np.linalg.lstsq(left, right, rcond=None)[0]
    prediction: Array = (new - mean_x) @ coefficients + mean_y
    return prediction


@pytest.mark.parametrize(("dim_x", "dim_y"), [(12, 9), (5, 9), (12, 1)])
def test_all_components_without_ridge_are_least_squares(dim_x: int, dim_y: int) -> None:
    X, Y = pairs(500, dim_x, dim_y)
    train, new = slice(0, 400), slice(400, 500)
    cca = CCA().fit(X[train], Y[train])
    forth, back = cca.predict(X[new]), cca.predict(None, Y[new])
    assert forth.shape == (100, dim_y)
    assert back.shape == (100, dim_x)
    np.testing.assert_allclose(forth, regression(X[train], Y[train], X[new]), atol=1e-8)
    np.testing.assert_allclose(back, regression(Y[train], X[train], Y[new]), atol=1e-8)


@pytest.mark.parametrize("shape", [(400, 12, 9), (400, 5, 9), (30, 50, 9), (30, 50, 60)])
def test_all_components_with_ridge_are_ridge_regression(shape: tuple[int, int, int]) -> None:
    X, Y = pairs(*shape)
    new, penalty = pairs(20, *shape[1:], seed=1), shape[0] - 1
    for cca in (
        CCA(ridge=(0.3, 2.0), relative_ridge=False, power=1.5),
        CCA(ridge=(0.01, 5.0)),
        CCA.for_retrieval(),
    ):
        cca.fit(X, Y)
        forth = regression(X, Y, new[0], penalty * cca.ridge_[0])
        back = regression(Y, X, new[1], penalty * cca.ridge_[1])
        np.testing.assert_allclose(cca.predict(new[0]), forth, atol=1e-8 * np.abs(forth).max())
        np.testing.assert_allclose(cca.predict(None, new[1]), back, atol=1e-8 * np.abs(back).max())


def test_more_features_than_pairs_without_ridge_are_the_smallest_coefficients() -> None:
    X, Y = pairs(30, 50, 4)
    new = pairs(20, 50, 4, seed=1)[0]
    with pytest.warns(UserWarning, match="correlations are 1"):
        cca = CCA().fit(X, Y)
    np.testing.assert_allclose(cca.predict(X), Y, atol=1e-8)
    np.testing.assert_allclose(cca.predict(new), regression(X, Y, new), atol=1e-8)


@pytest.mark.parametrize("ridge", [0.0, (0.3, 2.0)])
def test_few_components_are_the_regression_on_their_variates(ridge: Any) -> None:
    X, Y = pairs()
    cca = CCA(3, ridge=ridge, relative_ridge=False).fit(X, Y)
    A, means = cca.x_projection_, (X.mean(0), Y.mean(0))
    # Coefficients C of the variates, with the penalty (n - 1) r |A C|^2 on those of X.
    left = np.vstack([(X - means[0]) @ A, np.sqrt(399 * cca.ridge_[0]) * A])
    right = np.vstack([Y - means[1], np.zeros((12, 9))])
    C = np.linalg.lstsq(left, right, rcond=None)[0]
    np.testing.assert_allclose(cca.predict(X), (X - means[0]) @ A @ C + means[1], atol=1e-8)


def test_the_power_changes_no_prediction() -> None:
    X, Y = pairs()
    plain, weighted = CCA(4, ridge=0.1).fit(X, Y), CCA(4, ridge=0.1, power=3.0).fit(X, Y)
    np.testing.assert_array_equal(plain.predict(X), weighted.predict(X))


def test_loadings_are_covariances_of_features_and_variates() -> None:
    X, Y = pairs()
    cca = CCA(4).fit(X, Y)
    for view, loadings in ((X, cca.x_loadings_), (Y, cca.y_loadings_)):
        scores = cca.transform(X) if view is X else cca.transform_y(Y)
        np.testing.assert_allclose(loadings, np.cov(view.T, scores.T)[:-4, -4:], atol=1e-8)


def test_streamed_saved_and_loaded_estimators_predict_the_same(tmp_path: Path) -> None:
    X, Y = pairs()
    for y in (Y, Y[:, 0]):
        whole = CCA(1, ridge=0.1).fit(X, y)
        streamed = CCA(1, ridge=0.1).partial_fit(X[:150], y[:150]).partial_fit(X[150:], y[150:])
        np.testing.assert_allclose(streamed.predict(X), whole.predict(X), atol=1e-10)
        whole.save(tmp_path / "cca")
        again = CCA.load(tmp_path / "cca")
        np.testing.assert_array_equal(again.predict(X), whole.predict(X))
        np.testing.assert_array_equal(again.predict(None, y), whole.predict(None, y))


def test_files_without_loadings_open_but_cannot_predict(tmp_path: Path) -> None:
    X, Y = pairs()
    cca = CCA(3).fit(X, Y)
    cca.save(tmp_path / "new")
    with np.load(tmp_path / "new") as file:
        arrays = {name: file[name] for name in file if "loadings" not in name}
    assert "x_loadings" not in json.loads(str(arrays["header"]))["learned"]
    with (tmp_path / "old").open("wb") as out:
        np.savez(out, **arrays)
    old = CCA.load(tmp_path / "old")
    np.testing.assert_array_equal(old.transform(X), cca.transform(X))
    old.save(tmp_path / "resaved")
    for again in (old, CCA.load(tmp_path / "resaved")):
        assert not hasattr(again, "x_loadings_")
        with pytest.raises(InputError, match=r"earlier version.*fit it again"):
            again.predict(X)


def test_predictions_follow_the_input() -> None:
    X, Y = pairs()
    cca = CCA(3).fit(X, Y)
    tensor = cca.predict(torch.from_numpy(X).float())
    assert isinstance(tensor, torch.Tensor)
    assert tensor.dtype == torch.float32
    np.testing.assert_allclose(tensor.numpy(), cca.predict(X), atol=1e-4)
    assert cca.predict(X[:0]).shape == (0, 9)


def test_what_cannot_be_predicted_is_refused() -> None:
    X, Y = pairs()
    with pytest.raises(NotFittedError, match="not fitted"):
        CCA().predict(X)
    cca: Any = CCA().fit(X, Y)
    with pytest.raises(InputError, match=r"predict\(None, Y\)"):
        cca.predict(X, Y)
    with pytest.raises(InputError, match="X is missing"):
        cca.predict(None)
    with pytest.raises(InputError, match="X contains 4800 NaN"):
        cca.predict(X * np.nan)
