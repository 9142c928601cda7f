"""The one solver of CCA: from covariances to projections, with gradients.

`solve` whitens both views by Cholesky factors, W S W' = I, and decomposes T = Wx Sxy Wy' into
U diag(d) V'. The canonical projections are A = Wx' U and B = Wy' V, the correlations d. The layer's
batches, `CCALayer.refit`, the estimator `CCA` and the functions below all call it. All matrices are
d x d; float64 is advised.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from ccal.bounds import Whole, check
from ccal.cca.checks import refuse_second_derivative
from ccal.cca.spectral import canonical_gradients, divide_by_sums, singular_vectors
from ccal.cca.statistics import Covariances
from ccal.errors import InputError


def ridge_floor(dim: int, total_variance: float) -> float:
    """Smallest ridge that keeps a float64 covariance positive definite in floating point."""
    return max(dim, 64) * torch.finfo(torch.float64).eps * total_variance or 1.0


def ridge_in_force(cov: Tensor, ridge: float, *, relative: bool) -> tuple[float, float, float]:
    """The ridge, in units of the mean variance if `relative`, raised to `ridge_floor`.

    Also its share of the mean variance, 0 if it does not follow the variance, and that variance.
    """
    total = cov.trace().item()
    floor, variance = ridge_floor(len(cov), total), total / len(cov)
    amount = ridge * variance if relative else ridge
    if amount <= floor:
        return floor, floor / variance if variance else 0.0, variance
    return amount, ridge if relative else 0.0, variance


def add_ridge(cov: Tensor, ridge: float, *, relative: bool = False) -> Tensor:
    """cov + r I, with r = `ridge`, or `ridge` times the mean variance if `relative`.

    r is at least `ridge_floor`, a tiny share of the variance, so that rank-deficient and
    constant views stay invertible.

    >>> add_ridge(torch.eye(2).double() * 4, 0.5, relative=True).diagonal()
    tensor([6., 6.], dtype=torch.float64)
    """
    amount, share, _ = ridge_in_force(cov, ridge, relative=relative)
    r = share * cov.diagonal().mean() if share else cov.new_tensor(amount)
    return cov + r * torch.eye(len(cov), dtype=cov.dtype, device=cov.device)


def usable_ridge(cov: Tensor, ridge: float) -> float:
    """The ridge itself if cov + ridge I can be factorised safely, else a larger one that can.

    Unlike `add_ridge` this leaves a ridge of 0 alone unless the covariance is rank-deficient,
    whatever the units of the features.

    >>> usable_ridge(torch.eye(2).double(), 0.0)
    0.0
    """
    # A pivot is the variance that earlier features leave unexplained. Compared with the feature's
    # own variance it does not depend on units, so features of very different scale need no floor.
    pivot_floor = len(cov) * torch.finfo(torch.float64).eps
    floor = ridge_floor(len(cov), cov.trace().item())
    for _ in range(20):
        shifted = cov.clone()
        shifted.diagonal().add_(ridge)
        L, failed = torch.linalg.cholesky_ex(shifted)
        if not failed and bool((L.diagonal().square() > pivot_floor * shifted.diagonal()).all()):
            return ridge
        if ridge >= floor:
            floor *= 10
        ridge = floor
    raise InputError("The covariance cannot be factorised; rescale the views to ordinary units.")


def whitening(cov: Tensor) -> Tensor:
    """The inverse Cholesky factor W of a positive definite covariance: W cov W' = I.

    A sample x (a column) is whitened as W x; a batch of rows X as X W'.
    """
    identity = torch.eye(len(cov), dtype=cov.dtype, device=cov.device)
    # L' and, from W' L' = I, W': LAPACK's memory order needs no transposed copy of either.
    upper, _ = torch.linalg.cholesky_ex(cov, upper=True, check_errors=True)
    W: Tensor = torch.linalg.solve_triangular(upper, identity, upper=True, left=False).mT
    return W


class Solution(NamedTuple):
    """Projections A and B with A' Sxx A = I and B' Syy B = I, and the correlations d, descending.

    Canonical projections have A' Sxy B = diag(d). Aligned ones are A V' and B V' of those: both
    views are turned by the same orthogonal V, so that A' Sxy B = V diag(d) V'.
    """

    A: Tensor
    B: Tensor
    d: Tensor
    V: Tensor  # empty if canonical


def solve(
    cov: Covariances,
    whitenings: tuple[Tensor, Tensor] | None = None,
    *,
    k: int | None = None,
    aligned: bool = False,
    precision: torch.dtype = torch.float64,
    least_share: float = 0.0,
) -> Solution:
    """CCA of covariances that have their ridge already; no gradient.

    The result has the dtype of the covariances; d is float64. Pass the `whitenings` Wx and Wy if
    they are known. `k` keeps the leading components alone; without it A (d_x, d_x) and B (d_y, d_y)
    are square. `aligned` needs d_x = d_y and no k. `precision` and `least_share` are those of
    `singular_vectors`.

    >>> eye = torch.eye(2, dtype=torch.float64)
    >>> solve(Covariances(2 * eye, eye, eye / 2), k=2).d
    tensor([0.3536, 0.3536], dtype=torch.float64)
    """
    Wx, Wy = whitenings or (whitening(cov.xx), whitening(cov.yy))
    T = Wx @ cov.xy @ Wy.mT
    noise = None
    if T.dtype == torch.float64:
        # (d,): the size of the terms that cancel in whitened features, which have size 1.
        noise = Wx.abs() @ cov.xx.diagonal().sqrt(), Wy.abs() @ cov.yy.diagonal().sqrt()
    U, d, V = singular_vectors(T, precision, k=k, least_share=least_share, noise=noise)
    U, V = U.to(Wx), V.to(Wy)
    if aligned:
        return Solution(Wx.mT @ (U @ V.mT), Wy.mT, d, V)
    return Solution(*fix_signs(Wx.mT @ U, Wy.mT @ V), d, Wx.new_empty(0))


def fix_signs(A: Tensor, B: Tensor) -> tuple[Tensor, Tensor]:
    """Flip pairs of columns so that the largest entry of each column of `A` is positive."""
    largest = A.gather(0, A.abs().argmax(0, keepdim=True))
    signs = torch.where(largest < 0, -1.0, 1.0).to(A.dtype)[0]
    columns = min(A.shape[1], B.shape[1])
    return A * signs, torch.cat((B[:, :columns] * signs[:columns], B[:, columns:]), dim=1)


def whitened_cross_covariance(xx: Tensor, yy: Tensor, xy: Tensor) -> Tensor:
    """T = Wx Sxy Wy', whose singular values are the canonical correlations."""
    return whitening(xx) @ xy @ whitening(yy).mT


class _PolarFactor(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, T: Tensor) -> Tensor:
        U, d, V = singular_vectors(T)
        ctx.save_for_backward(U, d, V)
        return (U[:, : len(d)] @ V[:, : len(d)].mT).to(T)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        refuse_second_derivative("polar_factor")
        U, d, V = ctx.saved_tensors
        M, r = U.mT @ grad.to(U) @ V, len(d)
        inverse = torch.where(d > 64 * torch.finfo(d.dtype).eps * d[:1], 1 / d, 0)
        W = torch.empty_like(M)
        W[:r, :r] = divide_by_sums(M[:r, :r] - M[:r, :r].mT, d)
        W[r:, :r] = M[r:, :r] * inverse
        W[:r, r:] = M[:r, r:] * inverse[:, None]
        grad_T: Tensor = U @ W @ V.mT
        return grad_T.to(grad)


def polar_factor(T: Tensor) -> Tensor:
    """Q = U V' for T = U diag(d) V': the orthogonal matrix (partial isometry) nearest to T.

    The backward divides by d_i + d_j only, so it is finite wherever at most one correlation is
    zero, however many coincide. Directions in which Q is not defined get no gradient.

    >>> polar_factor(torch.diag(torch.tensor([3.0, 0.5]).double()))
    tensor([[1., 0.],
            [0., 1.]], dtype=torch.float64)
    """
    return _PolarFactor.apply(T)  # type: ignore[no-any-return, no-untyped-call]


class _CanonicalProjections(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, xx: Tensor, yy: Tensor, xy: Tensor, k: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        # Square, since the gradient of the kept axes passes through the dropped ones.
        A, B, d, _ = solve(Covariances(xx, yy, xy))
        ctx.save_for_backward(A, B, d)
        ctx.k = k
        return A[:, :k].clone(), B[:, :k].clone(), d[:k].to(A, copy=True)

    @staticmethod
    def backward(
        ctx: Any, grad_A: Tensor, grad_B: Tensor, grad_d: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, None]:
        refuse_second_derivative("canonical_projections")
        A, B, d = ctx.saved_tensors
        P = pad(A.mT @ grad_A, (0, len(A) - ctx.k))
        R = pad(B.mT @ grad_B, (0, len(B) - ctx.k))
        grad_d = pad(grad_d, (0, len(d) - ctx.k))
        W, Mx, My = canonical_gradients(P, R, grad_d, d, k=ctx.k, precision=A.dtype)
        return A @ Mx @ A.mT / -2, B @ My @ B.mT / -2, A @ W @ B.mT, None


def canonical_projections(
    xx: Tensor, yy: Tensor, xy: Tensor, k: int | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """A* (d_x, k), B* (d_y, k) and the k largest canonical correlations.

    `xx` (d_x, d_x) and `yy` (d_y, d_y) are positive definite (see `add_ridge`), `xy` is (d_x, d_y),
    and k is at most min(d_x, d_y), its default. A*' Sxx A* = B*' Syy B* = I and
    A*' Sxy B* = diag(d); the largest entry of each column of A* is positive.

    Axes with equal correlations are defined up to a rotation common to both views. A loss that does
    not see that rotation gets its exact gradient; one that does gets a finite one.

    >>> one, half = torch.eye(2).double(), torch.diag(torch.tensor([0.5, 0.9]).double())
    >>> canonical_projections(one, one, half, k=1)[2]
    tensor([0.9000], dtype=torch.float64)
    """
    limit = min(xy.shape)
    k = limit if k is None else k
    check("k", k, Whole(at_least=1, at_most=limit))
    return _CanonicalProjections.apply(xx, yy, xy, k)  # type: ignore[no-any-return, no-untyped-call]
