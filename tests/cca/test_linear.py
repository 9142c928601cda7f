from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn import cross_decomposition
from sklearn.base import clone
from sklearn.datasets import load_linnerud
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from ccal.cca.linear import CCA
from ccal.errors import SmallBatchWarning

Array = NDArray[np.float64]


def pairs(n: int = 400, dim_x: int = 12, dim_y: int = 9, seed: int = 0) -> tuple[Array, Array]:
    """Two views of five shared factors, with noise, means and unequal scales."""
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=(n, 5))
    X = shared @ rng.normal(size=(5, dim_x)) + rng.normal(size=(n, dim_x))
    Y = shared @ rng.normal(size=(5, dim_y)) + rng.normal(size=(n, dim_y))
    return X * np.logspace(-1, 1, dim_x) + 3, Y - 7


def reference(X: Array, Y: Array, ridge: tuple[float, float]) -> tuple[Array, Array, Array]:
    """CCA as one generalised symmetric eigenproblem, solved by LAPACK."""
    d = X.shape[1]
    C = np.cov(X.T, Y.T)
    left, right = C.copy(), C.copy()
    left[:d, :d], left[d:, d:] = 0, 0
    right[:d, d:], right[d:, :d] = 0, 0
    right[:d, :d] += ridge[0] * np.eye(d)
    right[d:, d:] += ridge[1] * np.eye(len(C) - d)
    values, vectors = scipy.linalg.eigh(left, right)
    k = min(d, len(C) - d)
    vectors = vectors[:, ::-1][:, :k] * np.sqrt(2)
    sign = np.sign(vectors[:d][np.abs(vectors[:d]).argmax(0), np.arange(k)])
    return values[::-1][:k], vectors[:d] * sign, vectors[d:] * sign


def assert_same(a: CCA, b: CCA, atol: float = 1e-8) -> None:
    np.testing.assert_allclose(a.correlations_, b.correlations_, atol=atol)
    np.testing.assert_allclose(a.ridge_, b.ridge_, rtol=atol)
    for name in ("x_projection_", "y_projection_", "x_mean_", "y_mean_"):
        one, two = getattr(a, name), getattr(b, name)
        np.testing.assert_allclose(one, two, atol=atol * max(1, np.abs(two).max()))
    assert a.n_samples_seen_ == b.n_samples_seen_


def test_linnerud() -> None:
    X, Y = load_linnerud(return_X_y=True)
    cca = CCA().fit(X, Y)
    np.testing.assert_allclose(cca.correlations_, [0.795608, 0.200556, 0.072570], atol=1e-6)
    assert cca.ridge_ == (0.0, 0.0)
    # The variates of the first pairs as cca_zoo 4.0.1 computes them, with our signs.
    zoo_x = [[0.12682042, -0.13524621, -1.50077789], [-0.94752555, -0.24573508, -1.20868680]]
    zoo_y = [[0.04345730, 0.52961092, 0.89006107], [-0.49619512, 0.07235291, 0.42509284]]
    np.testing.assert_allclose(cca.transform(X)[:2], zoo_x, atol=1e-7)
    np.testing.assert_allclose(cca.transform(None, Y)[:2], zoo_y, atol=1e-7)


@pytest.mark.parametrize("ridge", [0.0, 0.3, (0.01, 5.0)])
def test_equals_the_generalised_eigenproblem(ridge: float | tuple[float, float]) -> None:
    X, Y = pairs()
    cca = CCA(ridge=ridge, relative_ridge=False).fit(X, Y)
    pair = ridge if isinstance(ridge, tuple) else (ridge, ridge)
    correlations, A, B = reference(X, Y, pair)
    np.testing.assert_allclose(cca.correlations_, correlations, atol=1e-10)
    np.testing.assert_allclose(cca.x_projection_, A, atol=1e-8 * np.abs(A).max())
    np.testing.assert_allclose(cca.y_projection_, B, atol=1e-8 * np.abs(B).max())


def assert_same_variates(ours: Array, theirs: Array, atol: float) -> None:
    """Column by column, up to the sign."""
    signs = np.sign((ours * theirs).sum(0))
    np.testing.assert_allclose(ours, theirs * signs, atol=atol)


@pytest.mark.parametrize("scale", [False, True])
def test_variates_are_those_of_scikit_learn(scale: bool) -> None:
    X, Y = pairs()
    theirs = cross_decomposition.CCA(4, scale=scale, max_iter=10**5, tol=1e-20)
    cca = CCA(4)
    for ours, scores in zip(cca.fit_transform(X, Y), theirs.fit(X, Y).transform(X, Y), strict=True):
        # scikit-learn's weights have norm 1, so each component has a variance of its own.
        assert_same_variates(ours, scores / scores.std(axis=0, ddof=1), atol=1e-6)


def test_variates_are_those_of_orthonormal_bases() -> None:
    X, Y = pairs()
    (Qx, _), (Qy, _) = (np.linalg.qr(view - view.mean(0)) for view in (X, Y))
    U, d, Vt = np.linalg.svd(Qx.T @ Qy)
    cca = CCA()
    xs, ys = cca.fit_transform(X, Y)
    np.testing.assert_allclose(cca.correlations_, d, atol=1e-12)
    assert_same_variates(xs, np.sqrt(399) * Qx @ U[:, : len(d)], atol=1e-8)
    assert_same_variates(ys, np.sqrt(399) * Qy @ Vt.T, atol=1e-8)


def test_settings_for_retrieval() -> None:
    X, Y = pairs()
    former: dict[str, Any] = {"ridge": 1.0, "relative_ridge": True, "power": 1.0}
    cca = CCA.for_retrieval(4)
    assert cca.get_params() == CCA(4, **former).get_params()
    assert CCA.for_retrieval(power="auto").get_params() == CCA(ridge=1.0, power="auto").get_params()
    assert_same(clone(cca).fit(X, Y), CCA(4, **former).fit(X, Y), atol=0)
    with pytest.raises(TypeError, match="rigde"):
        CCA.for_retrieval(rigde=2.0)


@pytest.mark.parametrize("shape", [(20, 12, 9), (12, 12, 1), (10, 40, 30)])
def test_correlations_of_too_few_pairs_are_warned_of(shape: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(0)
    n, dim_x, dim_y = shape
    X, Y = rng.normal(size=(n, dim_x)), rng.normal(size=(n, dim_y))
    perfect = min(dim_x, dim_y, n - 1, dim_x + dim_y - (n - 1))
    message = rf"^{perfect} of {min(dim_x, dim_y, n - 1)} .* are 1.*ridge='auto'.*for_retrieval"
    with pytest.warns(SmallBatchWarning, match=message) as seen:
        CCA().fit(X, Y)
    assert seen[0].filename == __file__
    with pytest.warns(SmallBatchWarning, match=message) as seen:
        assert CCA().partial_fit(X, Y).correlations_[0] > 0.999
    assert seen[0].filename == __file__
    with pytest.warns(SmallBatchWarning, match=message) as seen:
        CCA().fit_transform(X, Y)
    assert seen[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CCA.for_retrieval().fit(X, Y)
        # One pair more than features fit perfectly, and few distinct features do not.
        X, Y = rng.normal(size=(22, 12)), rng.normal(size=(22, 9))
        CCA().fit(X, Y)
        CCA().fit(np.repeat(X[:, :3], 9, axis=1), Y)


def test_scores_are_white_and_correlate_as_promised() -> None:
    X, Y = pairs()
    cca = CCA()
    xs, ys = cca.fit_transform(X, Y)
    k = len(cca.correlations_)
    joint = np.cov(xs.T, ys.T)
    np.testing.assert_allclose(joint[:k, :k], np.eye(k), atol=1e-9)
    np.testing.assert_allclose(joint[k:, k:], np.eye(k), atol=1e-9)
    np.testing.assert_allclose(joint[:k, k:], np.diag(cca.correlations_), atol=1e-9)


def test_the_ridge_is_relative_to_the_mean_variance() -> None:
    X, Y = pairs()
    cca = CCA(ridge=(0.5, 2.0)).fit(X, Y)
    expected = 0.5 * X.var(0, ddof=1).mean(), 2.0 * Y.var(0, ddof=1).mean()
    np.testing.assert_allclose(cca.ridge_, expected)
    A = cca.x_projection_
    white = A.T @ (np.cov(X.T) + cca.ridge_[0] * np.eye(12)) @ A
    np.testing.assert_allclose(white, np.eye(A.shape[1]), atol=1e-10)


def test_power_weighs_the_scores() -> None:
    X, Y = pairs()
    plain, weighted = CCA(power=0).fit(X, Y), CCA(power=1.5).fit(X, Y)
    np.testing.assert_allclose(
        plain.transform(X) * plain.correlations_**1.5, weighted.transform(X), atol=1e-12
    )
    np.testing.assert_array_equal(plain.x_projection_, weighted.x_projection_)


@pytest.mark.parametrize(("dim_x", "dim_y"), [(90, 7), (7, 90), (90, 120), (60, 61)])
@pytest.mark.parametrize("ridge", [1e-3, (0.1, 3.0)])
def test_dual_equals_primal(dim_x: int, dim_y: int, ridge: float | tuple[float, float]) -> None:
    X, Y = pairs(60, dim_x, dim_y)
    # partial_fit never leaves the primal form.
    assert_same(CCA(ridge=ridge).fit(X, Y), CCA(ridge=ridge).partial_fit(X, Y))
    assert_same(CCA(3, ridge=ridge).fit(X, Y), CCA(3, ridge=ridge).partial_fit(X, Y))


def test_wide_views_need_no_square_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(30, 40_000)), rng.normal(size=(30, 5))
    sizes: list[int] = []

    def watch(allocate: Callable[..., Array]) -> Callable[..., Array]:
        def watched(shape: Any, *args: Any, **options: Any) -> Array:
            sizes.append(int(np.prod(shape)))
            return allocate(shape, *args, **options)

        return watched

    monkeypatch.setattr(np, "zeros", watch(np.zeros))
    monkeypatch.setattr(np, "empty", watch(np.empty))
    cca = CCA.for_retrieval(3).fit(X, Y)
    assert cca.x_projection_.shape == (40_000, 3)
    assert max(sizes) <= X.size


@pytest.mark.parametrize("chunk_rows", [1, 37, 400, None])
def test_fit_partial_fit_and_memory_maps_agree(tmp_path: Path, chunk_rows: int | None) -> None:
    X, Y = pairs()
    whole = CCA(4).fit(X, Y)
    assert_same(CCA(4, chunk_rows=chunk_rows).fit(X, Y), whole)
    parts = CCA(4, chunk_rows=chunk_rows)
    for rows in (slice(0, 1), slice(1, 150), slice(150, 400)):
        parts.partial_fit(X[rows], Y[rows])
    assert_same(parts, whole)
    assert_same(CCA(4).fit(X[:200], Y[:200]).partial_fit(X[200:], Y[200:]), whole)
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", Y)
    mapped = [np.load(tmp_path / f"{v}.npy", mmap_mode="r") for v in "xy"]
    assert_same(CCA(4, chunk_rows=chunk_rows).fit(*mapped), whole)
    assert_same(CCA(4).fit(torch.from_numpy(X), torch.from_numpy(Y)), whole)


def test_a_memory_map_is_read_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y = pairs(5000)
    np.save(tmp_path / "x.npy", X.astype(np.float32))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    largest: list[int] = []
    copyto = np.copyto

    def watch(out: Array, block: NDArray[Any], **options: Any) -> None:
        largest.append(len(block))
        copyto(out, block, **options)

    monkeypatch.setattr(np, "copyto", watch)
    cca = CCA(ridge="auto", chunk_rows=100).fit(mapped, Y)
    assert max(largest) == 100
    assert sum(largest) == 2 * 5000, "one pass over each view"
    assert cca.n_samples_seen_ == 5000


def test_statistics_survive_a_large_mean_and_drift() -> None:
    X, Y = pairs(1000)
    drift = np.linspace(0, 1, 1000)[:, None]
    exact = CCA().fit(X + drift, Y)
    shifted = CCA(chunk_rows=50).fit(X + drift + 1e6, Y - 1e6)
    np.testing.assert_allclose(shifted.correlations_, exact.correlations_, atol=1e-8)


def test_output_follows_the_input() -> None:
    X, Y = pairs()
    cca = CCA(3).fit(X, Y)
    assert cca.transform(X).dtype == np.float64
    assert cca.transform(X.astype(np.float32)).dtype == np.float32
    assert cca.transform(X.astype(np.float16)).dtype == np.float32
    assert cca.transform(X.astype(np.int64)).dtype == np.float64
    assert cca.transform(X.tolist()).dtype == np.float64
    xs, ys = cca.transform(torch.from_numpy(X).float(), Y)
    assert isinstance(xs, torch.Tensor)
    assert xs.dtype == torch.float32
    assert isinstance(ys, np.ndarray)
    np.testing.assert_allclose(xs.numpy(), cca.transform(X), atol=1e-5)
    np.testing.assert_array_equal(cca.transform_y(Y), cca.transform(None, Y))
    np.testing.assert_array_equal(cca.transform_y(Y), ys)
    assert cca.transform(X[:0]).shape == (0, 3)


def test_score_is_the_mean_reciprocal_rank_of_both_directions() -> None:
    X, Y = pairs()
    cca = CCA(4).fit(X, Y)
    xs, ys = cca.transform(X, Y)
    xs, ys = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (xs, ys))
    cosines = xs @ ys.T
    reciprocals = [
        1 / (1 + (row > row[i]).sum()) for m in (cosines, cosines.T) for i, row in enumerate(m)
    ]
    assert cca.score(X, Y) == pytest.approx(np.mean(reciprocals))


def test_scikit_learn_tools() -> None:
    X, Y = pairs()
    cca = CCA(3, ridge=(0.5, 0.25), power=0)
    copy = clone(cca)
    assert copy.get_params() == cca.get_params()
    assert repr(copy) == "CCA(n_components=3, ridge=(0.5, 0.25), power=0)"
    with pytest.raises(Exception, match="not fitted"):
        check_is_fitted(cca)
    grid = GridSearchCV(CCA(), {"ridge": [1e-3, 1.0], "n_components": [2, 5]}, cv=3).fit(X, Y)
    check_is_fitted(grid.best_estimator_)
    assert grid.best_score_ == grid.cv_results_["mean_test_score"].max()
    pipe = make_pipeline(StandardScaler(), CCA(3)).fit(X, Y)
    direct = CCA(3).fit(StandardScaler().fit_transform(X), Y)
    np.testing.assert_allclose(
        pipe.transform(X), direct.transform(StandardScaler().fit_transform(X))
    )
    assert pipe.score(X, Y) == pytest.approx(direct.score(StandardScaler().fit_transform(X), Y))
    assert pipe[-1].n_features_in_ == 12


def test_parameters_changed_after_partial_fit_wait_for_the_next_fit() -> None:
    X, Y = pairs()
    cca = CCA(ridge=0.1).partial_fit(X, Y)
    cca.set_params(ridge=5.0)
    assert_same(cca, CCA(ridge=0.1).fit(X, Y))


def test_progress_is_reported_when_asked_for() -> None:
    X, Y = pairs()
    told: list[tuple[str, int, int]] = []
    CCA(chunk_rows=150).fit(X, Y, progress=lambda *news: told.append(news))
    assert told == [("samples", 150, 400), ("samples", 300, 400), ("samples", 400, 400)]
    told.clear()
    auto = CCA(ridge="auto").fit(X, Y, progress=lambda *news: told.append(news))
    tried = len({str(trial["ridge"]) for trial in auto.search_})
    assert told[1:] == [("ridges", n, 23) for n in range(1, tried + 1)]


KINDS = st.sampled_from(["full", "constant column", "constant", "duplicate columns", "low rank"])


@settings(max_examples=150, deadline=None)
@given(
    kinds=st.tuples(KINDS, KINDS),
    n=st.integers(2, 30),
    dims=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    exponents=st.tuples(st.integers(-6, 6), st.integers(-6, 6)),
    ridge=st.sampled_from([0.0, 1e-3, 1.0]),
    dtype=st.sampled_from([np.float32, np.float64, np.int64]),
    seed=st.integers(0, 1000),
)
def test_awkward_views_give_finite_answers(
    kinds: tuple[str, str],
    n: int,
    dims: tuple[int, int],
    exponents: tuple[int, int],
    ridge: float,
    dtype: type,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)

    def view(kind: str, dim: int, exponent: int) -> NDArray[Any]:
        data = rng.normal(size=(n, dim))
        if kind == "constant column":
            data[:, 0] = 1.7
        elif kind == "constant":
            data[:] = 0.3
        elif kind == "duplicate columns":
            data[:] = data[:, :1]
        elif kind == "low rank":
            data = rng.normal(size=(n, 1)) @ rng.normal(size=(1, dim))
        return (data * 10.0**exponent).astype(dtype)

    X, Y = (view(*args) for args in zip(kinds, dims, exponents, strict=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", SmallBatchWarning)
        cca = CCA(ridge=ridge).fit(X, Y)
        xs, ys = cca.transform(X, Y)
        assert 0 <= cca.score(X, Y) <= 1
    assert np.isfinite(xs).all()
    assert np.isfinite(ys).all()
    assert np.isfinite(cca.x_projection_).all()
    assert ((cca.correlations_ >= 0) & (cca.correlations_ <= 1)).all()
    assert (np.diff(cca.correlations_) <= 1e-12).all()
    variances = np.asarray(xs, float).var(axis=0, ddof=1)
    # Without a ridge, directions that are rounding noise are only roughly white.
    assert (variances <= (1 + 1e-3 if ridge else 1.5)).all()


def test_features_of_very_different_scale_need_no_floor() -> None:
    X, Y = pairs()
    scales = np.logspace(-6, 6, 12)
    cca, scaled = CCA().fit(X, Y), CCA().fit(X * scales, Y)
    np.testing.assert_allclose(scaled.correlations_, cca.correlations_, atol=1e-9)
    assert scaled.ridge_ == (0.0, 0.0)


def test_rank_decides_the_number_of_components() -> None:
    X, Y = pairs()
    deficient = np.hstack([X[:, :3], X[:, :3] @ np.ones((3, 4)), np.ones((400, 2))])
    cca = CCA().fit(deficient, Y)
    assert len(cca.correlations_) == 3
    np.testing.assert_allclose(cca.correlations_, CCA().fit(X[:, :3], Y).correlations_, atol=1e-8)
    assert CCA(5).fit(deficient, Y).correlations_.shape == (5,)
    assert CCA().fit(np.ones((400, 4)), Y).correlations_.tolist() == [0.0]


def test_a_large_ridge_leaves_all_directions() -> None:
    X, Y = pairs()
    small = CCA(ridge=1.0, relative_ridge=False).fit(1e-4 * X, 1e-4 * Y)
    assert small.x_projection_.shape == CCA().fit(X, Y).x_projection_.shape
    assert CCA(ridge=1e7).fit(X, Y).x_projection_.shape[1] > 1


def test_wide_views_of_few_distinct_samples_have_the_components_asked_for() -> None:
    rng = np.random.default_rng(0)
    X, Y = np.repeat(rng.normal(size=(3, 20)), 2, axis=0), rng.normal(size=(6, 20))
    wide, narrow = CCA.for_retrieval(5).fit(X, Y), CCA.for_retrieval(5).partial_fit(X, Y)
    assert wide.transform(X).shape == narrow.transform(X).shape == (6, 5)
    np.testing.assert_allclose(wide.correlations_[:2], narrow.correlations_[:2])
