"""The dual form: a view with more features than samples, in coordinates of the samples' span."""

from __future__ import annotations

import numpy as np
import torch

from ccal.cca.linear.views import Float64, View, open_view

__all__ = ["SampleSpan"]

_BLOCK_VALUES = 1 << 22


class SampleSpan:
    """Coordinates of n samples in the at most n - 1 directions that they span.

    The centred view is X = Z Q' with Q (d, r) orthonormal, so Z (n, r) has the same inner products
    and ridge CCA of Z is ridge CCA of X: projections of X lie in the span, A = Q A_z. Z and Q
    come from the n x n Gram matrix X X' = E diag(l) E' as Z = E diag(l)^1/2 and
    Q = X' E diag(l)^-1/2; neither Q nor a d x d matrix is ever built.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(4, 50))
    >>> span = SampleSpan(open_view(X, "X"))
    >>> Z = span.coordinates.read()
    >>> Z.shape, bool(np.allclose(Z @ Z.T, (X - X.mean(0)) @ (X - X.mean(0)).T))
    ((4, 3), True)
    """

    def __init__(self, view: View) -> None:
        self.view = view
        self.mean = np.empty(view.dim)
        gram = np.zeros((view.rows, view.rows))
        for columns in self._blocks():
            block = view.read(columns=columns)
            with np.errstate(invalid="ignore", over="ignore"):
                self.mean[columns] = block.mean(axis=0)
                block -= self.mean[columns]
                gram += block @ block.T
        if not np.isfinite(gram.diagonal()).all():
            view.refuse_values()
        values, vectors = (t.numpy() for t in torch.linalg.eigh(torch.from_numpy(gram)))
        # Centring takes one dimension away; rounding alone decides what stands there.
        kept = values > view.rows * np.finfo(np.float64).eps * values[-1]
        kept[0] = False
        kept[-1] = True
        root = np.sqrt(np.maximum(values[kept], np.finfo(np.float64).tiny))
        self._directions = vectors[:, kept] / root
        self.coordinates = open_view(vectors[:, kept] * root, view.name)

    def lift(self, projection: Float64) -> Float64:
        """Projection (r, k) of the coordinates as a projection (d, k) of the view."""
        weights = self._directions @ projection
        lifted = np.empty((self.view.dim, projection.shape[1]))
        for columns in self._blocks():
            block = self.view.read(columns=columns)
            block -= self.mean[columns]
            lifted[columns] = block.T @ weights
        return lifted

    def _blocks(self) -> list[slice]:
        size = max(512, _BLOCK_VALUES // self.view.rows)
        return [slice(i, i + size) for i in range(0, self.view.dim, size)]
