"""Exact canonical projections of covariances with a ridge."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ccal.cca.projections import ridge_floor
from ccal.cca.statistics import Covariances
from ccal.errors import InputError

__all__ = ["NEGLIGIBLE", "Canonical", "canonical"]

NEGLIGIBLE = 1e-6
"""Correlations below this share of the largest are rounding noise, and mean no direction."""


class Canonical(NamedTuple):
    """Projections A (d_x, k) and B (d_y, k), correlations (k,), and the ridges that were added."""

    A: Tensor
    B: Tensor
    correlations: Tensor
    ridge: tuple[float, float]


def canonical(cov: Covariances, ridge: tuple[float, float], k: int) -> Canonical:
    """The k leading canonical projections: A' (Sxx + r_x I) A = I and B' (Syy + r_y I) B = I.

    T = Lx^-1 Sxy Ly^-T = U diag(d) V' with the Cholesky factors L of the covariances gives
    A = Lx^-T U and B = Ly^-T V, signs as they come. Unlike `canonical_projections` this never
    completes U and V to square matrices, and a ridge of 0 stays 0 unless a covariance is
    rank-deficient; then it is raised to `ridge_floor`.

    >>> eye = torch.eye(2, dtype=torch.float64)
    >>> canonical(Covariances(eye, eye, eye / 2), (1.0, 0.0), 2).correlations
    tensor([0.3536, 0.3536], dtype=torch.float64)
    """
    Lx, ridge_x = _cholesky(cov.xx, ridge[0])
    Ly, ridge_y = _cholesky(cov.yy, ridge[1])
    T = torch.linalg.solve_triangular(Lx, cov.xy, upper=False)
    T = torch.linalg.solve_triangular(Ly, T.mT, upper=False).mT
    U, d, Vh = torch.linalg.svd(T, full_matrices=False)
    A = torch.linalg.solve_triangular(Lx.mT, U[:, :k], upper=True)
    B = torch.linalg.solve_triangular(Ly.mT, Vh[:k].mT, upper=True)
    return Canonical(A, B, d[:k].clamp(max=1), (ridge_x, ridge_y))


def _cholesky(cov: Tensor, ridge: float) -> tuple[Tensor, float]:
    """Cholesky factor of cov + ridge I, with the ridge raised as far as needed."""
    # A pivot is the variance that earlier features leave unexplained. Judged against the feature's
    # own variance it does not depend on units, so features of very different scale need no floor.
    pivot_floor = len(cov) * torch.finfo(torch.float64).eps
    floor = ridge_floor(cov)
    for _ in range(20):
        shifted = cov.clone()
        shifted.diagonal().add_(ridge)
        L, failed = torch.linalg.cholesky_ex(shifted)
        pivots, variances = L.diagonal().square(), shifted.diagonal()
        if not failed and bool((pivots > pivot_floor * variances).all()):
            return L, ridge
        if ridge >= floor:
            floor *= 10
        ridge = floor
    raise InputError("The covariance cannot be factorised; rescale the views to ordinary units.")
