"""`CCA.permutation_test` against a slow reference, under independence and with planted pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ccal.cca.linear import CCA
from ccal.errors import InputError
from tests.cca.test_linear import Array, pairs


def planted(n: int, dims: tuple[int, int], correlations: list[float], seed: int) -> list[Array]:
    """Normal views whose first features correlate as given, mixed by random matrices."""
    rng = np.random.default_rng(seed)
    X, Y = (rng.normal(size=(n, dim)) for dim in dims)
    for i, r in enumerate(correlations):
        Y[:, i] = r * X[:, i] + np.sqrt(1 - r**2) * Y[:, i]
    return [view @ rng.normal(size=(view.shape[1],) * 2) for view in (X, Y)]


def orthonormal(M: Array, rank: int) -> Array:
    basis: Array = np.linalg.svd(M, full_matrices=False)[0][:, :rank]
    return basis


def slow_p_values(X: Array, Y: Array, ridge: tuple[float, float], permutations: int) -> Array:
    """Residuals of each step, permuted, and a new CCA of them by singular value decompositions.

    Rows sqrt((n - 1) r) I below a centred view are its ridge.
    """
    n, dims = len(X), (X.shape[1], Y.shape[1])
    views = []
    for view, dim, r, start in ((X, dims[0], ridge[0], n), (Y, dims[1], ridge[1], n + dims[0])):
        rows = np.zeros((n + sum(dims), dim))
        rows[:n] = view - view.mean(0)
        rows[start : start + dim] = np.sqrt((n - 1) * r) * np.eye(dim)
        views.append(rows)
    Qx, Qy = (orthonormal(view, dim) for view, dim in zip(views, dims, strict=True))
    U, d, Vt = np.linalg.svd(Qx.T @ Qy)
    rng = np.random.default_rng(0)
    orders = [rng.permutation(np.arange(n)[:, None])[:, 0] for _ in range(permutations)]
    p_values = []
    for i, observed in enumerate(d):
        x, y = (
            view - frame @ (frame.T @ view)
            for view, frame in zip(views, (Qx @ U[:, :i], Qy @ Vt.T[:, :i]), strict=True)
        )
        exceeded = 0
        for order in orders:
            permuted = np.vstack([y[:n][order], y[n:]])
            bases = orthonormal(x, dims[0] - i), orthonormal(permuted, dims[1] - i)
            exceeded += bool(np.linalg.svd(bases[0].T @ bases[1])[1][0] >= observed)
        p_values.append((1 + exceeded) / (1 + permutations))
    return np.maximum.accumulate(p_values)


@pytest.mark.parametrize("dims", [(4, 3), (3, 5)])
@pytest.mark.parametrize("ridge", [(0.0, 0.0), (0.5, 2.0)])
def test_p_values_are_those_of_the_slow_reference(
    dims: tuple[int, int], ridge: tuple[float, float]
) -> None:
    X, Y = planted(25, dims, [0.9, 0.4], seed=0)
    cca = CCA(ridge=ridge, relative_ridge=False)
    test = cca.permutation_test(X, Y, permutations=60)
    np.testing.assert_allclose(test.p_values, slow_p_values(X, Y, ridge, 60), atol=1e-12)
    np.testing.assert_allclose(test.correlations, cca.fit(X, Y).correlations_, atol=1e-12)
    assert len(set(test.p_values)) > 1, "the data must not be trivial"


def test_p_values_of_independent_views_are_uniform() -> None:
    p = np.array(
        [
            CCA(1).permutation_test(*planted(30, (3, 2), [], seed), permutations=99).p_values[0]
            for seed in range(200)
        ]
    )
    # Three standard deviations: of the mean 0.29 / 200^0.5, of the shares (q (1 - q) / 200)^0.5.
    assert abs(p.mean() - 0.505) < 0.062
    for q in (0.05, 0.25, 0.5, 0.75):
        assert abs((p <= q).mean() - q) < 3 * np.sqrt(q * (1 - q) / 200)


@pytest.mark.parametrize("real", [0, 1, 3])
def test_planted_correlations_are_found(real: int) -> None:
    found = [
        CCA()
        .permutation_test(*planted(200, (8, 6), [0.9, 0.7, 0.5][:real], seed), permutations=99)
        .significant()
        for seed in range(20)
    ]
    # One data set in twenty may show one too many.
    assert min(found) == real
    assert sum(count > real for count in found) <= 3


def test_whole_groups_change_places() -> None:
    X, Y = planted(40, (4, 3), [], seed=3)
    alone = CCA().permutation_test(X, Y, permutations=99)
    rows = np.repeat(np.arange(40), 5)
    grouped = CCA().permutation_test(X[rows], Y[rows], permutations=99, groups=rows)
    np.testing.assert_array_equal(grouped.p_values, alone.p_values)
    assert grouped.significant() == 0
    # Repeated rows are no further evidence, but count as such without groups.
    assert CCA().permutation_test(X[rows], Y[rows], permutations=99).significant() > 0
    # Groups may have several sizes, and their rows any order.
    rows = np.random.default_rng(1).permutation(rows)[:90]
    mixed = CCA().permutation_test(X[rows], Y[rows], permutations=99, groups=rows)
    assert mixed.significant() == 0


def test_views_may_be_tensors_wide_or_of_one_column() -> None:
    X, Y = pairs(60)
    test = CCA(2).permutation_test(X, Y, permutations=19)
    tensors = CCA(2).permutation_test(*map(torch.from_numpy, (X, Y)), permutations=19)
    np.testing.assert_array_equal(tensors.p_values, test.p_values)
    assert CCA().permutation_test(X, Y[:, 0], permutations=19).p_values.tolist() == [0.05]
    X, Y = pairs(30, 50, 40)
    assert (CCA().permutation_test(X, Y, permutations=19).p_values == 1).all()
    ridged = CCA(ridge=1.0).permutation_test(X, Y, permutations=19)
    assert ridged.significant() > 0
    np.testing.assert_allclose(ridged.correlations, CCA(ridge=1.0).fit(X, Y).correlations_)


def test_the_result_is_a_table() -> None:
    X, Y = pairs()
    cca = CCA(2)
    test = cca.permutation_test(X, Y, permutations=99)
    assert not hasattr(cca, "correlations_"), "the test fits nothing"
    assert str(test).splitlines() == [
        "component  correlation  p-value",
        f"        1       {test.correlations[0]:.4f}   0.0100",
        f"        2       {test.correlations[1]:.4f}   0.0100",
        "2 of 2 correlations are significant at the level 0.05 (99 permutations).",
    ]
    assert test.significant(0.001) == 0


@pytest.mark.parametrize(
    ("settings", "options", "message"),
    [
        ({"ridge": "auto"}, {}, "ridge='auto' would choose"),
        ({}, {"permutations": 0}, "permutations must be a whole number"),
        ({}, {"groups": [1, 2]}, r"groups must have .* \(6,\)"),
        ({}, {"groups": [1, 2, 2, 3, 3, 3]}, "the 3 groups differ in size"),
    ],
)
def test_what_cannot_be_tested_is_refused(settings: Any, options: Any, message: str) -> None:
    X, Y = pairs(6, 2, 2)
    with pytest.raises(InputError, match=message):
        CCA(**settings).permutation_test(X, Y, **options)
