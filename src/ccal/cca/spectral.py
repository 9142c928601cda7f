"""Singular vectors of T, and how a gradient passes through them without dividing by zero.

All matrices here are small (d x d). A *frame* of a view is a basis in which its covariance is the
identity: x* = x A with A' Sxx A = I. In the canonical frames A*, B* the cross-covariance is the
diagonal matrix of canonical correlations d.

Perturb the covariances and write the changes in the frames: Nx = A' dSxx A, Ny = B' dSyy B,
E = A' dSxy B - (Nx D + D Ny) / 2. Then dA = A (Oa - Nx / 2) and dB = B (Ob - Ny / 2) with rotations

    Oa_ij = S_ij / (d_j - d_i) + K_ij / (d_j + d_i)        S, K: symmetric and antisymmetric
    Ob_ij = S_ij / (d_j - d_i) - K_ij / (d_j + d_i)        parts of E

So only a rotation common to both views divides by the gap between correlations, and a loss that
sees cosines alone does not feel a common rotation: its gradient needs the sums d_i + d_j only.
Differentiating U and V one by one hides this, and divides by d_i^2 - d_j^2 twice.
"""

import torch
from torch import Tensor

# Squared ratio of the least to the largest correlation above which float32 products suffice.
_NARROW = 2.5e-5

# Matrices below this size are decomposed fast enough, and of a larger one `_leading` finds the
# singular values above this share of the largest to at least 10 digits.
_LARGE, _LEAST = 500, 1e-3

# Rounding errors may be this many times their expected size.
_ROUNDING = 16


Matrices = tuple[Tensor, Tensor, Tensor]


def _symmetric(M: Tensor) -> Tensor:
    """(M + M') / 2."""
    return (M + M.mT) / 2


def _antisymmetric(M: Tensor) -> Tensor:
    """(M - M') / 2."""
    return (M - M.mT) / 2


class PrecisionError(Exception):
    """The samples need more precision than they came in."""


def singular_vectors(
    T: Tensor,
    precision: torch.dtype = torch.float64,
    *,
    k: int | None = None,
    least_share: float = 0.0,
    noise: tuple[Tensor, Tensor] | None = None,
) -> Matrices:
    """U, d, V of T = U diag(d) V' with d descending, in float64, exact to `precision`.

    U (d_x, d_x) and V (d_y, d_y) are square; with `k`, they are the leading k columns of them.

    Where `precision` allows, a square T goes through the eigenvectors of T'T, which takes half the
    time of an SVD but loses the square of T's condition number. U and V come in the dtype of T
    where they are as exact as T is. A square T with a singular value below `least_share` of the
    largest raises `PrecisionError`. Rounding has left errors of about
    eps `noise`_0i `noise`_1j in T_ij; singular values no larger than that become 0.
    """
    rows, columns = T.shape
    wide = T.double()
    if rows == columns and precision != torch.float64:
        # eigh sorts ascending, so the eigenvalues of -T'T are -d^2 with d descending.
        e, V = torch.linalg.eigh(torch.addmm(wide, wide.mT, wide, beta=0, alpha=-1))
        loss = 4 * torch.finfo(torch.float64).eps / torch.finfo(precision).eps
        squares = e.neg_().tolist()
        largest, least = squares[0], squares[-1]
        if least_share and least < least_share**2 * largest:
            raise PrecisionError
        if least > loss * largest:
            d = e.sqrt_()
            # Dividing by d multiplies the rounding of the product, and T's own, by this span.
            kind = T.dtype if least > _NARROW * largest else torch.float64
            V = V.to(kind)
            return (T.to(kind) @ V).div_(d.to(kind)), d, V
    found = None
    if k is not None and min(rows, columns) >= max(_LARGE, 2 * k):
        found = _leading(wide, k)
    if found is None:
        U, d, Vh = torch.linalg.svd(wide, full_matrices=k is None)
        found = U[:, :k], d[:k], Vh.mT[:, :k]
    U, d, V = found
    if noise is not None:
        left, right = (vectors.abs().mT @ n for vectors, n in zip((U, V), noise, strict=True))
        rounding = _ROUNDING * torch.finfo(d.dtype).eps * (left[: len(d)] * right[: len(d)])
        # The gradient multiplies both sides with samples of that precision.
        rounding.clamp_min_(_ROUNDING * torch.finfo(precision).eps ** 2 * d[0])
        d = torch.where(d > rounding, d, 0)
    return U, d, V


def _leading(T: Tensor, k: int) -> Matrices | None:
    """U, d, V of the k largest singular values; None if some are too small for this.

    The eigenvectors of T T' cost a fifth of an SVD of T, but know d to d_0 / d_k times fewer
    digits. The SVD of U' T alone restores all but the part of that loss which turns the kept
    directions into dropped ones.
    """
    if T.shape[0] > T.shape[1]:
        found = _leading(T.mT, k)
        return found and found[::-1]
    U = torch.linalg.eigh(T @ T.mT)[1][:, -k:]
    Q, R = torch.linalg.qr(T.mT @ U)
    V, d, Wh = torch.linalg.svd(R)
    return (U @ Wh.mT, d, Q @ V) if d[-1] > _LEAST * d[0] else None


def divide_by_sums(M: Tensor, d: Tensor) -> Tensor:
    """M_ij / (d_i + d_j), perhaps in place; 0 where both are 0: any rotation will do there."""
    values = d.tolist()
    floor = 64 * torch.finfo(M.dtype).eps * values[0]
    whole = values[-1] > floor
    d = d.to(M.dtype)
    sums = d[:, None] + d
    return M.div_(sums) if whole else torch.where(sums > floor, M / sums, 0)


def _inverse_gap(d: Tensor, precision: torch.dtype, k: int) -> Tensor:
    """1 / (d_j - d_i), turning smoothly to 0 for gaps that are small at that precision.

    Cosines do not see a rotation among the first k axes. Its numerator is rounding error, so larger
    gaps count as small there. They do see a rotation of kept axes into dropped ones, whose gradient
    truly grows with 1 / gap.
    """
    gap, eps = d - d[:, None], torch.finfo(precision).eps
    kept = torch.arange(len(d), device=d.device) < k
    width = torch.where(kept[:, None] == kept, eps ** (1 / 2), eps ** (2 / 3)) * d[:1]
    width.clamp_min_(torch.finfo(d.dtype).tiny ** 0.25)
    gap /= width
    guarded: Tensor = gap**3 / (1 + gap**4) / width
    return guarded.to(precision)


def _weighted_common_rotation(
    C: Tensor, d: Tensor, k: int, power: float, precision: torch.dtype
) -> Tensor:
    """Common rotation over the gap, for coordinates weighted by d^power whose weights nearly tie.

    A loss of weighted cosines is invariant to rotations of the *weighted* coordinates. In those,
    M_ij = w_i C_ij / w_j is symmetric, and is multiplied by the divided difference of w^2 in d,
    which is finite at ties. The antisymmetric rest of M is multiplied by the guarded inverse gap.
    """
    d = d[:k]
    w = d**power
    M = w[:, None] * C[:k, :k].double() / w
    gap, middle = d - d[:, None], (d + d[:, None]) / 2
    near = gap.abs() < 1e-5 * middle
    difference = torch.where(
        near,
        2 * power * middle ** (2 * power - 1),
        (w.square() - w.square()[:, None]) / torch.where(near, 1, gap),
    )
    guarded = _inverse_gap(d, precision, k) * (w.square() + w.square()[:, None])
    scale = 2 * w * w[:, None]
    return ((_symmetric(M) * difference + _antisymmetric(M) * guarded) / scale).to(C.dtype)


def canonical_gradients(
    P: Tensor,
    R: Tensor,
    grad_d: Tensor | None,
    d: Tensor,
    *,
    k: int,
    power: float = 0.0,
    precision: torch.dtype = torch.float64,
) -> Matrices:
    """Gradient of the loss in the frames, from that of the canonical projections.

    Returns W, Mx and My: the gradient is W for Sxy, -Mx / 2 for Sxx and -My / 2 for Syy.
    `P` = A' dL/dA (d_x, d_x) and `R` = B' dL/dB (d_y, d_y) may be float32; `grad_d` and `d` have
    min(d_x, d_y) entries. The loss sees the first `k` axes, weighted by d^power. `precision` is
    that of the samples behind P and R.
    """
    d_x, d_y, size = len(P), len(R), max(len(P), len(R))
    grad_d = torch.zeros_like(d) if grad_d is None else grad_d
    if d_x != d_y:
        # The smaller view gets extra axes of correlation zero.
        P, R = (torch.nn.functional.pad(m, (0, size - len(m)) * 2) for m in (P, R))
        grad_d, d = (torch.nn.functional.pad(v, (0, size - len(v))) for v in (grad_d, d))
    C = P + R
    W = _antisymmetric(C) * _inverse_gap(d, precision, k).to(C)
    if power:
        close = (d[:k] - d[:k, None]).abs() < 0.1 * torch.maximum(d[:k], d[:k, None])
        rotation = _weighted_common_rotation(C, d, k, power, precision)
        alive = d[:k] > 64 * torch.finfo(P.dtype).eps * d[0]
        W[:k, :k] = torch.where(close & alive & alive[:, None], rotation, W[:k, :k])
        W.diagonal().zero_()
    W += divide_by_sums(_antisymmetric(P - R), d)
    if d_x != d_y:
        # An axis of one view alone turns only that view: gap and sum are the same.
        r, alone = min(d_x, d_y), _antisymmetric(P if d_x > d_y else -R)
        inverse = torch.where(d[:r] > 64 * torch.finfo(P.dtype).eps * d[0], 2 / d[:r], 0).to(P)
        W[r:, :r], W[:r, r:] = alone[r:, :r] * inverse, alone[:r, r:] * inverse[:, None]
    W.diagonal().add_(grad_d.to(P.dtype))
    weights = d.to(P.dtype)
    Mx = _symmetric(P + W * weights)
    My = _symmetric(R + weights[:, None] * W)
    return W[:d_x, :d_y], Mx[:d_x, :d_x], My[:d_y, :d_y]


def aligned_gradients(
    P: Tensor, R: Tensor, grad_d: Tensor | None, d: Tensor, V: Tensor
) -> Matrices:
    """The same as `canonical_gradients` in the frames A = Wx' Q, B = Wy'.

    H = A' Sxy B = V diag(d) V' is symmetric. The rotation of A against B solves a Lyapunov equation
    in H, diagonal in V; the rotation of both is that of the Cholesky factor behind Wy.
    """
    dtype = P.dtype
    K = P - P.mT
    V = V.to(dtype)
    Vt = V.mT
    narrow = d.to(dtype)
    turned = V @ divide_by_sums(Vt @ K @ V, narrow)
    W, WH = turned @ Vt, turned.mul_(narrow) @ Vt
    moved = (WH + WH.mT).sub_(K)
    Mx = torch.add(P, moved, alpha=0.5)
    # Cholesky factors are triangular, so the upper half of the gradient counts twice.
    upper = torch.sub(R, moved, alpha=0.5).triu_()
    My = upper + upper.mT
    My.diagonal().mul_(0.5)
    if grad_d is not None and bool(grad_d.any()):
        stretch = (V * (d * grad_d).to(dtype)) @ Vt
        Mx, My = Mx + stretch, My + stretch
        W = W + (V * grad_d.to(dtype)) @ Vt
    return W, Mx, My
