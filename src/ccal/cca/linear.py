"""`CCA`: linear CCA of two views as an estimator in scikit-learn's style."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccal.bounds import Whole, check
from ccal.cca.checks import row_keys
from ccal.cca.estimator import Estimator, accept_y
from ccal.cca.fitting import (
    Fitted,
    Gather,
    Parameters,
    Progress,
    fit_gathered,
    fit_moments,
    fit_pairs,
)
from ccal.cca.permutation import PermutationTest, permutation_test
from ccal.cca.statistics import Moments
from ccal.cca.views import Float64, open_pair, open_view, project_view, stream
from ccal.errors import InputError, NotFittedError
from ccal.ranks import mean_reciprocal_ranks

if TYPE_CHECKING:
    from os import PathLike


ArrayX = TypeVar("ArrayX", NDArray[Any], Tensor)
ArrayY = TypeVar("ArrayY", NDArray[Any], Tensor)

_KIND = "ccal.CCA/1"
_NO_LOADINGS = "This CCA was saved by an earlier version, without loadings; fit it again."
_LEARNED = tuple(f"{field.name}_" for field in fields(Fitted))


class CCA(Estimator):
    """Canonical correlation analysis of two views.

    Finds the directions of X (n, d_x) and of Y (n, d_y) that correlate most, and projects both
    views onto k of them. `CCA()` is classic CCA: the variates that `transform` gives of the
    training pairs have mean 0 and variance 1 (of n - 1 degrees of freedom, as in cca_zoo), those of
    one view are uncorrelated, and the i-th ones of both views correlate by `correlations_[i]`.
    scikit-learn's differ by one factor a component: divided by their standard deviation they are
    the same, up to the sign.

    For retrieval, the cosine between a projected row of X and one of Y tells how well they match.
    Classic CCA overfits there unless n is many times d_x + d_y: use `ridge="auto", power="auto"`,
    or `CCA.for_retrieval()` for fixed values that do well.

    Views may be NumPy arrays, memory-mapped files larger than memory (`np.load(path,
    mmap_mode="r")`: read once, in chunks) or tensors; Y of shape (n,) is one column. Statistics are
    float64 and exact. A view with more features than samples is solved in the span of its samples,
    which gives the same answer without a d x d matrix. For the tools of scikit-learn, every method
    takes the keyword `y` for `Y`.

    Args:
        n_components: dimension k of the common space, at most min(d_x, d_y, n - 1); None takes
            all directions whose correlation is not zero.
        ridge: r in Sxx + r I, one number for both views or a pair; 0 is classic CCA, more ridge
            overfits less. "auto" chooses a pair on held-out training pairs, or on those of `fit`.
        relative_ridge: the ridge counts in units of the view's mean variance.
        power: scores are multiplied by correlation^power, so that uncertain directions count less;
            0 is classic CCA; "auto" chooses on held-out training pairs.
        validation_fraction: share of the training pairs that "auto" holds out at a time (at least
            10 pairs, at most 2,000; several times if that is less than 600). The final fit uses
            all pairs.
        random_state: seed of the held-out draw.
        chunk_rows: rows read at a time; None chooses by the number of features.

    Attributes:
        correlations_: (k,) canonical correlations of the regularised problem, descending.
        x_projection_, y_projection_: A (d_x, k) and B (d_y, k), with A' (Sxx + r I) A = I. The
            largest entry of each column of A is positive. Scores are
            (X - x_mean_) A diag(correlations_^power_).
        x_loadings_, y_loadings_: (Sxx + r I) A (d_x, k) and (Syy + r I) B (d_y, k), for ridge 0 the
            covariances of features and variates.
        x_mean_, y_mean_: (d_x,) and (d_y,).
        ridge_: the absolute ridge of each view, raised if a view would not be invertible.
        power_: the power in use.
        search_: the trials of "auto": dicts of ridge (as you would pass it), power, mrr (the mean
            of both directions) and candidates (how many y an x looks at, how many x a y).
        n_samples_seen_, n_features_in_: n and d_x.

    >>> rng = np.random.default_rng(0)
    >>> meaning = rng.normal(size=(500, 4))
    >>> X = meaning @ rng.normal(size=(4, 20)) + rng.normal(size=(500, 20))
    >>> Y = meaning @ rng.normal(size=(4, 30)) + rng.normal(size=(500, 30))
    >>> cca = CCA(n_components=4).fit(X, Y)
    >>> cca.transform(X).std(axis=0, ddof=1).round(6)
    array([1., 1., 1., 1.])
    >>> search = CCA(n_components=4, ridge="auto", power="auto").fit(X[:400], Y[:400])
    >>> search.transform(X[400:]).shape
    (100, 4)
    >>> search.score(X[400:], Y[400:]) > 0.5
    True
    """

    correlations_: Float64
    x_projection_: Float64
    y_projection_: Float64
    x_loadings_: Float64
    y_loadings_: Float64
    x_mean_: Float64
    y_mean_: Float64
    ridge_: tuple[float, float]
    power_: float
    n_samples_seen_: int
    search_: list[dict[str, object]]

    _fitted: Fitted | None = None
    _moments: Moments | None = None
    _parameters: Parameters | None = None

    def __init__(
        self,
        n_components: int | None = None,
        *,
        ridge: float | tuple[float, float] | Literal["auto"] = 0.0,
        relative_ridge: bool = True,
        power: float | Literal["auto"] = 0.0,
        validation_fraction: float = 0.1,
        random_state: int | None = 0,
        chunk_rows: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.ridge = ridge
        self.relative_ridge = relative_ridge
        self.power = power
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.chunk_rows = chunk_rows

    @classmethod
    def for_retrieval(cls, n_components: int | None = None, **changes: Any) -> Self:
        """CCA with `ridge=1.0, power=1.0`, which suit retrieval on most data; `changes` override.

        `ridge="auto", power="auto"` is better if there are 20 pairs or more, and takes longer.

        >>> CCA.for_retrieval(64, power=0.5)
        CCA(n_components=64, ridge=1.0, power=0.5)
        """
        return cls(n_components, **{"ridge": 1.0, "power": 1.0, **changes})

    @accept_y
    def fit(
        self,
        X: Any,
        Y: Any,
        *,
        groups: Any = None,
        items: tuple[Any, Any] | None = None,
        valid: tuple[Any, Any] | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Learn from pairs X (n, d_x) and Y (n, d_y), n >= 2; forget earlier pairs.

        "auto" asks held-out pairs for their counterparts, as `ccal.evaluation` does: every item is
        a candidate once, and a query's right answers are the items that it is paired with and all
        items of its group. `groups` (n,) are equal for rows that show the same thing, such as the
        captions of one picture: they are held out together, so that none is found because CCA saw
        another. `items`, (n,) of X and (n,) of Y, are equal for rows of the same item; None
        compares the held-out rows with each other. With `valid`, other pairs (m, d_x) and (m, d_y),
        "auto" chooses on these and holds nothing out: better where the pairs to be found are of
        other sources than those of training. None of them changes a fit without "auto".

        `progress` is called as `progress("samples", done, total)` while rows are read and as
        `progress("ridges", tried, most)` while "auto" searches.
        """
        parameters = Parameters.of(self.get_params())
        x, y = open_pair(X, Y)
        keys: dict[str, Any] = {
            "groups": None if groups is None else row_keys("groups", groups, x.rows),
            "items": items and tuple(row_keys("items", numbers, x.rows) for numbers in items),
        }
        if valid is not None:
            keys["valid"] = open_pair(*valid, x.dim, y.dim)
        self._fitted, self._moments = fit_pairs(x, y, parameters, progress, **keys)
        return self

    def fit_gathered(
        self, rows: int, dims: tuple[int, int], gather: Gather, *, progress: Progress | None = None
    ) -> Self:
        """Learn as `fit` does, from pairs that other processes or machines read.

        `gather` is called once with sets of row numbers, those that "auto" holds out, each sorted;
        it returns the moments of all other rows, which may be the sum of many parts, and the
        samples of each set. `dims` are (d_x, d_y).
        """
        parameters = Parameters.of(self.get_params())
        self._fitted, self._moments = fit_gathered(rows, dims, gather, parameters, progress)
        return self

    @accept_y
    def partial_fit(self, X: Any, Y: Any) -> Self:
        """Learn from more pairs, as if they had been part of the same `fit`.

        Projections are computed when they are next asked for, so many small chunks cost little more
        than one large one. Keeps d x d statistics, however few the samples.
        """
        parameters = Parameters.of(self.get_params())
        if parameters.automatic:
            raise InputError(
                "partial_fit cannot hold pairs out: ridge='auto' and power='auto' need fit "
                "(which also reads memory-mapped arrays larger than memory). Or pass numbers: the "
                "ridge_ and power_ that a fit on some pairs chose, with relative_ridge=False."
            )
        seen = self._moments
        if seen is None and self._fitted is not None:
            raise InputError(
                "partial_fit cannot continue from this fit, which was loaded from a file or had "
                "fewer samples than features. Start with a new CCA."
            )
        dims = (None, None) if seen is None else (len(seen.mean_x), len(seen.mean_y))
        x, y = open_pair(X, Y, *dims)
        more, _ = stream(x, y, chunk_rows=parameters.chunk_rows)
        self._moments = more if seen is None else seen + more
        self._parameters, self._fitted = parameters, None
        return self

    @overload
    def transform(self, X: ArrayX, Y: None = None) -> ArrayX: ...
    @overload
    def transform(self, X: None, Y: ArrayY) -> ArrayY: ...
    @overload
    def transform(self, X: ArrayX, Y: ArrayY) -> tuple[ArrayX, ArrayY]: ...
    @accept_y
    def transform(self, X: Any, Y: Any = None) -> Any:
        """Scores (n, k) of X, of Y if X is None, or of both; their rows need not be pairs.

        Arrays in, arrays out; tensors in, tensors out on their device. Scores are float64 for
        float64 and integer input, float32 otherwise.
        """
        learned = self._learned()
        weights = learned.correlations**learned.power
        if Y is None:
            view = open_view(X, "X", len(learned.x_mean))
            return project_view(view, learned.x_mean, learned.x_projection * weights)
        view = open_view(Y, "Y", len(learned.y_mean), column=True)
        scores = project_view(view, learned.y_mean, learned.y_projection * weights)
        return scores if X is None else (self.transform(X), scores)

    def transform_y(self, Y: ArrayY) -> ArrayY:
        """Scores (n, k) of Y alone."""
        return self.transform(None, Y)

    @overload
    def predict(self, X: ArrayX, Y: None = None) -> ArrayX: ...
    @overload
    def predict(self, X: None, Y: ArrayY) -> ArrayY: ...
    @accept_y
    def predict(self, X: Any, Y: Any = None) -> Any:
        """Predict Y (n, d_y) from X (n, d_x) or, as `predict(None, Y)`, X from Y.

        The best linear prediction from the k canonical variates of the given view (reduced-rank
        regression): least squares, with the ridge of that view as the penalty. With all components
        it is ordinary least squares for ridge 0, and ridge regression otherwise. `power` weighs
        scores, and changes no prediction. Kinds of arrays are those of `transform`.

        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(100, 3))
        >>> Y = X @ [[1.0, 0.0], [2.0, -1.0], [0.0, 3.0]] + 5
        >>> CCA().fit(X, Y).predict([[1.0, 1.0, 1.0]]).round(6)
        array([[8., 7.]])
        """
        learned = self._learned()
        if X is not None and Y is not None:
            raise InputError("predict takes one view: predict(X) for Y, predict(None, Y) for X.")
        if learned.x_loadings is None or learned.y_loadings is None:
            raise InputError(f"predict needs loadings. {_NO_LOADINGS}")
        x_mean, y_mean, d = learned.x_mean, learned.y_mean, learned.correlations[:, None]
        if Y is None:
            view = open_view(X, "X", len(x_mean))
            factors = learned.x_projection, d * learned.y_loadings.T
            return project_view(view, x_mean, *factors, offset=y_mean)
        view = open_view(Y, "Y", len(y_mean), column=True)
        factors = learned.y_projection, d * learned.x_loadings.T
        return project_view(view, y_mean, *factors, offset=x_mean)

    @accept_y
    def fit_transform(self, X: ArrayX, Y: ArrayY) -> tuple[ArrayX, ArrayY]:
        """Fit, then the scores (n, k) of both views."""
        return self.fit(X, Y).transform(X, Y)

    @accept_y
    def permutation_test(
        self, X: Any, Y: Any, *, permutations: int = 1000, groups: Any = None
    ) -> PermutationTest:
        """P-values (k,) of the correlations of X (n, d_x) and Y (n, d_y): which are real?

        Uses the parameters of this estimator, and leaves its fit alone. The rows of Y are permuted,
        and each correlation is compared with the largest one that permuted pairs have without the
        earlier components (Winkler et al. 2020). P-values are corrected for the number of
        components. A permutation takes n d_x d_y operations and an eigendecomposition for each
        component; both views must fit in memory.

        `groups` (n,) are equal for rows that depend on each other, such as the captions of one
        picture: whole groups change places, with others of their size.

        >>> rng = np.random.default_rng(0)
        >>> X, noise = rng.normal(size=(2, 300, 4))
        >>> Y = X * [2, 1, 0, 0] + noise
        >>> print(CCA().permutation_test(X, Y, permutations=199))
        component  correlation  p-value
                1       0.8838   0.0050
                2       0.7082   0.0050
                3       0.0886   0.5850
                4       0.0153   0.7900
        2 of 4 correlations are significant at the level 0.05 (199 permutations).
        """
        parameters = Parameters.of(self.get_params())
        if parameters.ridge is None:
            raise InputError(
                "permutation_test cannot choose a ridge: ridge='auto' would choose it by the pairs "
                "that it permutes. Pass a number, such as the ridge_ of a fit on other pairs, with "
                "relative_ridge=False."
            )
        check("permutations", permutations, Whole(at_least=1))
        x, y = open_pair(X, Y)
        keys = None if groups is None else row_keys("groups", groups, x.rows)
        return permutation_test(x, y, parameters, permutations, keys)

    @accept_y
    def score(self, X: Any, Y: Any) -> float:
        """Mean reciprocal rank of each row's counterpart by cosine, mean of X -> Y and Y -> X.

        Between 0 and 1; ties count against the counterpart.
        """
        if not open_pair(X, Y)[0].rows:
            raise InputError("score needs pairs to search for, got 0 rows.")
        x, y = (torch.as_tensor(scores).cpu().double() for scores in self.transform(X, Y))
        # Projections that collapse to a point must not look perfect.
        return sum(mean_reciprocal_ranks(x, y, pessimistic=True)) / 2

    def save(self, path: str | PathLike[str]) -> None:
        """Write parameters and projections to the file `path`, whole or not at all."""
        from ccal.array_files import write_archive

        learned = vars(self._learned())
        arrays = {name: v for name, v in learned.items() if isinstance(v, np.ndarray)}
        plain = {name: v for name, v in learned.items() if name not in arrays}
        write_archive(path, _KIND, {"params": self.get_params(), "learned": plain}, arrays)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read what `save` wrote."""
        from ccal.array_files import read_archive

        header, arrays = read_archive(path, _KIND)
        try:
            params, learned = header["params"], header["learned"]
            params.pop("verbose", None)  # a parameter of earlier versions
            if isinstance(params["ridge"], list):
                params["ridge"] = tuple(params["ridge"])
            cca = cls(**params)
            cca._fitted = Fitted.restore({**learned, **arrays})
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{str(path)!r} is not a complete CCA file: {error}") from error
        return cca

    @property
    def n_features_in_(self) -> int:
        """Features of X, under scikit-learn's name."""
        return len(self.x_mean_)

    def _learned(self) -> Fitted:
        """The fit, computed now if `partial_fit` has added pairs since."""
        if self._fitted is None:
            if self._moments is None or self._parameters is None:
                raise NotFittedError("This CCA is not fitted yet; call fit(X, Y) first.")
            self._fitted = fit_moments(self._moments, self._parameters)
        return self._fitted

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name not in _LEARNED:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            if not self.__sklearn_is_fitted__():
                raise AttributeError(f"{name} is known only after fit(X, Y).")
            try:
                learned = self._learned()
            except InputError as error:
                # With too few pairs, hasattr must answer False instead of raising.
                raise AttributeError(str(error)) from error
            value = getattr(learned, name.removesuffix("_"))
            if value is None:
                raise AttributeError(f"There is no {name}. {_NO_LOADINGS}")
            return value

    def __sklearn_is_fitted__(self) -> bool:
        return self._fitted is not None or self._moments is not None
