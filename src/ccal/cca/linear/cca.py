"""CCA: the linear estimator in scikit-learn's style, for two views."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccal.cca.linear.archive import read_archive, write_archive
from ccal.cca.linear.estimator import Estimator
from ccal.cca.linear.parameters import Settings
from ccal.cca.linear.selection import both_ways
from ccal.cca.linear.solution import Solution, fit_pairs, solve
from ccal.cca.linear.streaming import stream
from ccal.cca.linear.views import Float64, open_pair, open_view, project
from ccal.cca.statistics import Moments
from ccal.errors import InputError, NotFittedError

__all__ = ["CCA"]

ArrayX = TypeVar("ArrayX", NDArray[Any], Tensor)
ArrayY = TypeVar("ArrayY", NDArray[Any], Tensor)

_KIND = "ccal.CCA/1"
_LEARNED = tuple(f"{field.name}_" for field in fields(Solution))


class CCA(Estimator):
    """Canonical correlation analysis of two views, for retrieval across them.

    Finds the directions of X (n, d_x) and of Y (n, d_y) that correlate most, and projects both
    views onto k of them, so that the cosine between a projected row of X and one of Y tells how
    well they belong together. The defaults suit retrieval; `ridge=0, power=0` is classic CCA.

    Views may be NumPy arrays, memory-mapped files larger than memory (`np.load(path,
    mmap_mode="r")`: read once, in chunks) or tensors. Statistics are float64 and exact. A view with
    more features than samples is solved in the span of its samples, which gives the same answer
    without a d x d matrix.

    Args:
        n_components: dimension k of the common space, at most min(d_x, d_y, n - 1); None takes
            all directions whose correlation is not zero.
        ridge: r in Sxx + r I, one number for both views or a pair; more ridge overfits less.
            "auto" chooses a pair on held-out training pairs.
        relative_ridge: the ridge counts in units of the view's mean variance.
        power: scores are multiplied by correlation^power, so that uncertain directions count less;
            0 weighs all alike; "auto" chooses on held-out training pairs.
        validation_fraction: share of the training pairs that "auto" holds out at a time (at least
            10 pairs, at most 2,000; several times if that is less than 600). The final fit uses
            all pairs.
        random_state: seed of the held-out draw.
        chunk_rows: rows read at a time; None chooses by the number of features.
        verbose: report progress on stderr.

    Attributes:
        correlations_: (k,) canonical correlations of the regularised problem, descending.
        x_projection_, y_projection_: A (d_x, k) and B (d_y, k), with A' (Sxx + r I) A = I. The
            largest entry of each column of A is positive. Scores are
            (X - x_mean_) A diag(correlations_^power_).
        x_mean_, y_mean_: (d_x,) and (d_y,).
        ridge_: the absolute ridge of each view, raised if a view would not be invertible.
        power_: the power in use.
        search_: what "auto" tried: dicts of ridge (as you would pass it), power and mrr.
        n_samples_seen_, n_features_in_: n and d_x.

    >>> rng = np.random.default_rng(0)
    >>> meaning = rng.normal(size=(500, 4))
    >>> X = meaning @ rng.normal(size=(4, 20)) + rng.normal(size=(500, 20))
    >>> Y = meaning @ rng.normal(size=(4, 30)) + rng.normal(size=(500, 30))
    >>> cca = CCA(n_components=4).fit(X[:400], Y[:400])
    >>> cca.transform(X[400:]).shape
    (100, 4)
    >>> cca.score(X[400:], Y[400:]) > 0.5
    True
    """

    correlations_: Float64
    x_projection_: Float64
    y_projection_: Float64
    x_mean_: Float64
    y_mean_: Float64
    ridge_: tuple[float, float]
    power_: float
    n_samples_seen_: int
    search_: list[dict[str, object]]

    _solution: Solution | None = None
    _moments: Moments | None = None
    _settings: Settings | None = None

    def __init__(
        self,
        n_components: int | None = None,
        *,
        ridge: float | tuple[float, float] | Literal["auto"] = 1.0,
        relative_ridge: bool = True,
        power: float | Literal["auto"] = 1.0,
        validation_fraction: float = 0.1,
        random_state: int | None = 0,
        chunk_rows: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.n_components = n_components
        self.ridge = ridge
        self.relative_ridge = relative_ridge
        self.power = power
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.chunk_rows = chunk_rows
        self.verbose = verbose

    def fit(self, X: Any, Y: Any) -> Self:
        """Learn from pairs X (n, d_x) and Y (n, d_y), n >= 2; forgets what was learned before."""
        settings = Settings.of(self.get_params())
        self._solution, self._moments = fit_pairs(*open_pair(X, Y), settings)
        return self

    def partial_fit(self, X: Any, Y: Any) -> Self:
        """Learn from more pairs, as if they had been part of the same `fit`.

        Projections are computed when they are next asked for, so many small chunks cost little more
        than one large one. Keeps d x d statistics, however few the samples.
        """
        settings = Settings.of(self.get_params())
        if settings.automatic:
            raise InputError(
                "partial_fit cannot hold pairs out: ridge='auto' and power='auto' need fit "
                "(which also reads memory-mapped arrays larger than memory). Or pass numbers: the "
                "ridge_ and power_ that a fit on some pairs chose, with relative_ridge=False."
            )
        seen = self._moments
        if seen is None and self._solution is not None:
            raise InputError(
                "partial_fit cannot go on from this fit: it was loaded from a file, or had fewer "
                "samples than features. Start with a new CCA."
            )
        dims = (None, None) if seen is None else (len(seen.mean_x), len(seen.mean_y))
        x, y = open_pair(X, Y, *dims)
        more, _ = stream(x, y, chunk_rows=settings.chunk_rows, verbose=settings.verbose)
        self._moments = more if seen is None else seen + more
        self._settings, self._solution = settings, None
        return self

    @overload
    def transform(self, X: ArrayX, Y: None = None) -> ArrayX: ...
    @overload
    def transform(self, X: None, Y: ArrayY) -> ArrayY: ...
    @overload
    def transform(self, X: ArrayX, Y: ArrayY) -> tuple[ArrayX, ArrayY]: ...
    def transform(self, X: Any, Y: Any = None) -> Any:
        """Scores (n, k) of X, of Y if X is None, or of both; their rows need not be pairs.

        Arrays in, arrays out; tensors in, tensors out on their device. Scores are float64 for
        float64 and integer input, float32 otherwise.
        """
        learned = self._learned()
        if Y is None:
            return project(open_view(X, "X", len(learned.x_mean)), learned.x_mean, learned.x_map)
        scores = project(open_view(Y, "Y", len(learned.y_mean)), learned.y_mean, learned.y_map)
        return scores if X is None else (self.transform(X), scores)

    def transform_y(self, Y: ArrayY) -> ArrayY:
        """Scores (n, k) of Y alone."""
        return self.transform(None, Y)

    def fit_transform(self, X: ArrayX, Y: ArrayY) -> tuple[ArrayX, ArrayY]:
        """Fit, then the scores (n, k) of both views."""
        return self.fit(X, Y).transform(X, Y)

    def score(self, X: Any, Y: Any) -> float:
        """Mean reciprocal rank of each row's counterpart by cosine, mean of X -> Y and Y -> X.

        Between 0 and 1; ties count against the counterpart.
        """
        if not open_pair(X, Y)[0].rows:
            raise InputError("score needs pairs to search for, got 0 rows.")
        x, y = (torch.as_tensor(scores).cpu().double() for scores in self.transform(X, Y))
        return both_ways(x, y)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write parameters and projections to the file `path`, whole or not at all."""
        learned = vars(self._learned())
        arrays = {name: v for name, v in learned.items() if isinstance(v, np.ndarray)}
        plain = {name: v for name, v in learned.items() if name not in arrays}
        write_archive(path, _KIND, {"params": self.get_params(), "learned": plain}, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote."""
        header, arrays = read_archive(path, _KIND)
        try:
            params, learned = header["params"], header["learned"]
            if isinstance(params["ridge"], list):
                params["ridge"] = tuple(params["ridge"])
            cca = cls(**params)
            cca._solution = Solution.restore({**learned, **arrays})
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{str(path)!r} is not a complete CCA file: {error}") from error
        return cca

    @property
    def n_features_in_(self) -> int:
        """Features of X, under scikit-learn's name."""
        return len(self.x_mean_)

    def _learned(self) -> Solution:
        """The solution, computed now if `partial_fit` brought pairs since."""
        if self._solution is None:
            if self._moments is None or self._settings is None:
                raise NotFittedError("This CCA is not fitted yet; call fit(X, Y) first.")
            self._solution = solve(self._moments, self._settings)
        return self._solution

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name not in _LEARNED:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            if not self.__sklearn_is_fitted__():
                raise AttributeError(f"{name} is known only after fit(X, Y).")
            try:
                learned = self._learned()
            except InputError as error:
                # Pairs too few to solve for: to hasattr, that is an attribute not yet there.
                raise AttributeError(str(error)) from error
            return getattr(learned, name.removesuffix("_"))

    def __sklearn_is_fitted__(self) -> bool:
        return self._solution is not None or self._moments is not None
