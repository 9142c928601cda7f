"""CCA's projections as differentiable functions of the covariances.

Everything takes and returns d x d matrices; float64 is advised. `CCALayer` computes the same in one
fused step from the samples.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ccal.cca.checks import refuse_second_derivative
from ccal.cca.spectral import (
    SingularFrames,
    canonical_gradients,
    divide_by_sums,
    singular_frames,
)
from ccal.errors import InputError

__all__ = [
    "add_ridge",
    "canonical_projections",
    "polar_factor",
    "reach",
    "ridge_floor",
    "whitened_cross_covariance",
    "whitening",
]


def ridge_floor(cov: Tensor) -> float:
    """Smallest ridge that keeps a float64 covariance positive definite in floating point."""
    share = max(len(cov), 64) * torch.finfo(torch.float64).eps
    return share * cov.trace().item() or 1.0


def add_ridge(cov: Tensor, ridge: float, *, relative: bool = False) -> Tensor:
    """cov + r I, with r = `ridge`, or `ridge` times the mean variance if `relative`.

    r is at least `ridge_floor(cov)`, a tiny share of the variance, so that rank-deficient and
    constant views stay invertible.

    >>> add_ridge(torch.eye(2).double() * 4, 0.5, relative=True).diagonal()
    tensor([6., 6.], dtype=torch.float64)
    """
    amount = ridge * cov.diagonal().mean() if relative else cov.new_tensor(ridge)
    amount = amount.clamp_min(ridge_floor(cov))
    return cov + amount * torch.eye(len(cov), dtype=cov.dtype, device=cov.device)


def whitening(cov: Tensor, identity: Tensor | None = None) -> Tensor:
    """The inverse Cholesky factor W of a positive definite covariance: W cov W' = I.

    A sample x (a column) is whitened as W x; a batch of rows X as X W'. Whoever has the identity
    matrix at hand may pass it.
    """
    if identity is None:
        identity = torch.eye(len(cov), dtype=cov.dtype, device=cov.device)
    # L' and, from W' L' = I, W': both lie in memory as they are asked for, nothing is transposed.
    upper, _ = torch.linalg.cholesky_ex(cov, upper=True, check_errors=True)
    W: Tensor = torch.linalg.solve_triangular(upper, identity, upper=True, left=False).mT
    return W


def reach(W: Tensor, cov: Tensor) -> Tensor:
    """(d,): how large the terms are that cancel in the whitened features, whose size is 1."""
    return W.double().abs() @ cov.diagonal().double().sqrt()


def whitened_cross_covariance(xx: Tensor, yy: Tensor, xy: Tensor) -> Tensor:
    """T = Wx Sxy Wy', whose singular values are the canonical correlations."""
    return whitening(xx) @ xy @ whitening(yy).mT


class _PolarFactor(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, T: Tensor) -> Tensor:
        U, d, V = singular_frames(T)
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


def fix_signs(A: Tensor, B: Tensor) -> tuple[Tensor, Tensor]:
    """Flip pairs of columns so that the largest entry of each column of `A` is positive."""
    largest = A.gather(0, A.abs().argmax(0, keepdim=True))
    signs = torch.where(largest < 0, -1.0, 1.0).to(A.dtype)[0]
    columns = min(A.shape[1], B.shape[1])
    return A * signs, torch.cat((B[:, :columns] * signs[:columns], B[:, columns:]), dim=1)


def canonical_frames(
    Wx: Tensor, Wy: Tensor, frames: SingularFrames
) -> tuple[Tensor, Tensor, Tensor]:
    """Square canonical frames A (d_x, d_x), B (d_y, d_y) and correlations; no gradient.

    `frames` are those of T; the result comes in the dtype of `Wx` and `Wy`.
    """
    U, d, V = frames
    return *fix_signs(Wx.mT @ U.to(Wx), Wy.mT @ V.to(Wy)), d


def aligned_frames(
    Wx: Tensor, Wy: Tensor, frames: SingularFrames
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Frames A = Wx' Q and B = Wy', correlations, and V, which turns them canonical; d_x = d_y."""
    U, d, V = frames
    V = V.to(Wx)
    return Wx.mT @ (U.to(Wx) @ V.mT), Wy.mT, d, V


class _CanonicalProjections(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, xx: Tensor, yy: Tensor, xy: Tensor, k: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        Wx, Wy = whitening(xx), whitening(yy)
        frames = singular_frames(Wx @ xy @ Wy.mT, noise=(reach(Wx, xx), reach(Wy, yy)))
        A, B, d = canonical_frames(Wx, Wy, frames)
        ctx.save_for_backward(A, B, d)
        ctx.k = k
        return A[:, :k].clone(), B[:, :k].clone(), d[:k].to(A, copy=True)

    @staticmethod
    def backward(
        ctx: Any, grad_A: Tensor, grad_B: Tensor, grad_d: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, None]:
        refuse_second_derivative("canonical_projections")
        A, B, d = ctx.saved_tensors
        pad = torch.nn.functional.pad
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
    if not 1 <= k <= limit:
        raise InputError(f"k must lie between 1 and min(d_x, d_y) = {limit}, got {k}.")
    return _CanonicalProjections.apply(xx, yy, xy, k)  # type: ignore[no-any-return, no-untyped-call]
