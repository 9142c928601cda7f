"""`CCA` under scikit-learn's own checks of estimators, and its conventions of naming."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch

from ccal import errors
from ccal.cca.linear import CCA

pytest.importorskip("sklearn", minversion="1.6", reason="check_estimator has no on_fail before")

from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import check_estimator

from tests.cca.test_linear import assert_same, pairs


class TwoViews(CCA):
    """`CCA` under a name that scikit-learn does not know."""


_BOTH_VIEWS = "fit_transform(X, Y) gives the scores of both views, transform(X) those of X alone."
CANNOT_PASS: dict[str, dict[str, str]] = {
    # scikit-learn knows by the name that `fit_transform` of CCA gives two arrays, as its own does.
    "CCA": {},
    "TwoViews": {
        "check_transformer_data_not_an_array": _BOTH_VIEWS,
        "check_transformer_general": _BOTH_VIEWS,
    },
}


@pytest.mark.filterwarnings("ignore:Estimator .* does not inherit from")
@pytest.mark.filterwarnings("ignore::ccal.errors.SmallBatchWarning")
@pytest.mark.parametrize("cca", [CCA(), CCA.for_retrieval(), TwoViews()], ids=repr)
def test_all_checks_of_scikit_learn_pass_but_those_listed(cca: CCA) -> None:
    results = check_estimator(cca, on_fail=None, on_skip=None)
    failed = {r["check_name"]: str(r["exception"]) for r in results if r["status"] == "failed"}
    assert failed.keys() == CANNOT_PASS[type(cca).__name__].keys(), failed
    assert len(results) > 40


def test_a_second_view_of_one_column_may_be_a_vector() -> None:
    X, Y = pairs()
    y = Y[:, 0]
    matrix = CCA().fit(X, y[:, None])
    for vector in (y, y.tolist(), torch.from_numpy(y), y.astype(object)):
        assert_same(CCA().fit(X, vector), matrix, atol=0)
        assert_same(CCA().partial_fit(X, vector), matrix)
    np.testing.assert_array_equal(matrix.transform(None, y), matrix.transform(None, y[:, None]))
    assert matrix.score(X, y) == matrix.score(X, y[:, None])
    with pytest.raises(errors.InputError, match=r"Y has 1 features.* 9 features.*\(9,\)"):
        CCA().fit(X, Y).transform(None, Y[0])


def test_the_keyword_y_stands_for_the_second_view() -> None:
    X, Y = pairs()
    cca = CCA().fit(X, Y)
    # Type checkers know only the name Y.
    y: dict[str, Any] = {"y": Y}
    assert_same(CCA().fit(X, **y), cca, atol=0)
    assert_same(CCA().partial_fit(X, **y), cca)
    for one, two in zip(CCA().fit_transform(X, **y), cca.transform(X, Y), strict=True):
        np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(cca.transform(None, **y), cca.transform_y(Y))
    np.testing.assert_array_equal(cca.predict(None, **y), cca.predict(None, Y))
    assert cca.score(X, **y) == cca.score(X, Y=Y)
    with pytest.raises(TypeError, match="'Y'"):
        cca.fit(X, Y=Y, **y)


def test_errors_before_the_fit_are_those_of_both_libraries() -> None:
    X, _ = pairs()
    with pytest.raises(NotFittedError, match="not fitted") as raised:
        CCA().transform(X)
    assert isinstance(raised.value, errors.NotFittedError)
    again = pickle.loads(pickle.dumps(raised.value))
    assert isinstance(again, NotFittedError)
    assert str(again) == str(raised.value)


def test_objects_that_are_no_numbers_are_refused() -> None:
    X, Y = pairs()
    wrong = X.astype(object)
    assert_same(CCA().fit(wrong, Y), CCA().fit(X, Y), atol=0)
    wrong[0, 0] = {}
    with pytest.raises(errors.InputError, match=r"X must be a matrix of real numbers.*'dict'"):
        CCA().fit(wrong, Y)
    wrong[0, 0] = None
    with pytest.raises(errors.InputError, match="X contains 1 NaN"):
        CCA().fit(wrong, Y)
