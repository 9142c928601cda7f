"""CCA of a batch, forward and backward, in as few products as the mathematics allows.

The backward never forms a gradient of A or B. In a frame, P = A' dL/dA is x*' dL/dx*, and

    dL/dX = (dL/dX* + 2 / (m - 1) X* Nx + 1 / (m - 1) Y* W') A'

so it costs eight m x d products, all between well-scaled whitened matrices; the ill-conditioned
inverse covariance enters once, at the end. The d x d work runs in float64. The m x d products run
in the precision of the samples where the covariances are well enough conditioned for that, and in
float64 where they are not.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ccal import distributed
from ccal.cca.checks import check_finite
from ccal.cca.newton_schulz import polar_factor_newton_schulz
from ccal.cca.projections import aligned_frames, canonical_frames, ridge_floor, whitening
from ccal.cca.spectral import aligned_gradients, canonical_gradients
from ccal.cca.statistics import Moments
from ccal.errors import InputError

__all__ = ["Pass", "Settings", "backward_pass", "forward_pass"]

# A float32 product leaves an error of about 1e-7 sqrt(S_ii S_jj) in a covariance. Whitening
# multiplies it by up to this number before the products are done again in float64.
_CONDITION_LIMIT = 1e4


class Settings(NamedTuple):
    """How a batch is projected; `CCALayer` says what each means.

    All are numbers, since an operator takes nothing else.
    """

    ridge_x: float = 1e-3
    ridge_y: float = 1e-3
    relative_ridge: float = False
    momentum: float = 1.0
    aligned: float = False
    newton_schulz: float = False
    k: float = 1
    power: float = 0.0
    sync: float = True

    @property
    def shared(self) -> bool:
        """Whether other ranks take part."""
        return bool(self.sync) and distributed.world_size() > 1


class Pass(NamedTuple):
    """What a forward pass computes: results, then what the backward needs besides."""

    x: Tensor
    y: Tensor
    correlations: Tensor
    A: Tensor
    B: Tensor
    mean_x: Tensor
    mean_y: Tensor
    xx: Tensor
    yy: Tensor
    xy: Tensor
    divisor: Tensor  # V, or H = A' Sxy B for Newton-Schulz: how to divide by d_i + d_j
    shift_x: Tensor  # mean of the batch minus mean of the statistics; empty where that is zero
    shift_y: Tensor
    facts: Tensor  # samples, momentum in force, share of the mean variance in either ridge


def _centre(view: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """Centred samples, and their mean in float64: a second pass mends the rounding of the first."""
    first = view.mean(0)
    centred = view - first
    second = centred.mean(0)
    centred -= second
    mean = first.double() + second
    if not bool(torch.isfinite(mean).all()):
        check_finite(view, name)
    return centred, mean


def _with_ridge(cov: Tensor, ridge: float, relative: bool) -> tuple[Tensor, float]:
    """cov + r I, and the share of the mean variance in r, which the gradient needs."""
    variance, floor = torch.stack((cov.diagonal().mean(), ridge_floor(cov))).tolist()
    amount, share = (ridge * variance, ridge) if relative else (ridge, 0.0)
    if amount < floor:
        amount, share = floor, (floor / variance if variance else 0.0)
    cov = cov.clone()
    cov.diagonal().add_(amount)
    return cov, share


class _Whitened(NamedTuple):
    samples: int
    momentum: float
    shifts: tuple[Tensor, Tensor]
    statistics: list[Tensor]
    Wx: Tensor
    Wy: Tensor
    share_x: float
    share_y: float
    well_conditioned: bool


def _whitened(
    xc: Tensor, yc: Tensor, means: tuple[Tensor, Tensor], running: list[Tensor], s: Settings
) -> _Whitened:
    products = (xc.mT @ xc, yc.mT @ yc, xc.mT @ yc)
    moments = Moments(len(xc), *means, *(p.double() for p in products))
    if s.shared:
        moments = moments.all_reduce()
    if moments.count < 2:
        raise InputError(
            f"CCA needs at least 2 samples, got {moments.count}; it wants many times more than "
            f"the dimension ({max(xc.shape[1], yc.shape[1])})."
        )
    cov = moments.covariances()
    statistics = [moments.mean_x, moments.mean_y, cov.xx, cov.yy, cov.xy]
    shifts = moments.mean_x.new_empty(0), moments.mean_y.new_empty(0)
    momentum = 1.0
    if running:
        # The first batch has nothing to be averaged with.
        momentum = s.momentum if bool(running[5]) else 1.0
        statistics = [a.lerp(b, momentum) for a, b in zip(running[:5], statistics, strict=True)]
        shifts = moments.mean_x - statistics[0], moments.mean_y - statistics[1]
    xx, share_x = _with_ridge(statistics[2], s.ridge_x, bool(s.relative_ridge))
    yy, share_y = _with_ridge(statistics[3], s.ridge_y, bool(s.relative_ridge))
    Wx, Wy = whitening(xx), whitening(yy)
    noise = torch.maximum((Wx.square() @ xx.diagonal()).sum(), (Wy.square() @ yy.diagonal()).sum())
    return _Whitened(
        moments.count,
        momentum,
        shifts,
        statistics,
        Wx,
        Wy,
        share_x,
        share_y,
        bool(noise < _CONDITION_LIMIT),
    )


def _frames(
    Wx: Tensor, Wy: Tensor, xy: Tensor, s: Settings, precision: torch.dtype
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Frames A and B, correlations, and what the backward needs to divide by d_i + d_j."""
    if s.newton_schulz:
        T = Wx @ xy @ Wy.mT
        Q = polar_factor_newton_schulz(T)
        return Wx.mT @ Q, Wy.mT.contiguous(), T.new_zeros(len(T)), Q.mT @ T
    if s.aligned:
        return aligned_frames(Wx, Wy, xy, precision)
    return *canonical_frames(Wx, Wy, xy, precision), xy.new_empty(0)


def forward_pass(x: Tensor, y: Tensor, running: list[Tensor], s: Settings) -> Pass:
    """Frames of the batch and the batch in them; see `batch_cca` for the arguments."""
    (xc, mean_x), (yc, mean_y) = _centre(x, "x"), _centre(y, "y")
    # Ranks must take the same path, so a group of them never decides by its own rounding.
    exact = x.dtype == torch.float64 or s.shared
    if not exact:
        try:
            white = _whitened(xc, yc, (mean_x, mean_y), running, s)
            exact = not white.well_conditioned
        except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
            exact = True
    if exact:
        white = _whitened(xc.double(), yc.double(), (mean_x, mean_y), running, s)
    A, B, d, divisor = _frames(white.Wx, white.Wy, white.statistics[4], s, x.dtype)
    x_frame, y_frame = xc @ A.to(x), yc @ B.to(y)
    if running or s.shared:
        # The samples are centred at their own mean, the frames at that of the statistics.
        x_frame += ((mean_x - white.statistics[0]) @ A).to(x)
        y_frame += ((mean_y - white.statistics[1]) @ B).to(y)
    facts = [white.samples, white.momentum, white.share_x, white.share_y]
    results = [x_frame, y_frame, d, A, B, *white.statistics]
    return Pass._make([*results, divisor, *white.shifts, torch.tensor(facts, dtype=torch.float64)])


class _View(NamedTuple):
    """One view's part in the backward."""

    samples: Tensor
    frame: Tensor
    grad: Tensor
    grad_sum: Tensor
    A: Tensor
    mean: Tensor
    shift: Tensor
    N: Tensor
    share: float


def _view_gradient(view: _View, other: _View, W: Tensor, momentum: float, count: float) -> Tensor:
    """dL/dX from the gradient in the frames; `W` leads from the other view's frame to this one."""
    scale = momentum / (count - 1)
    N, W, At = view.N * (2 * scale), W * scale, view.A.to(view.frame).mT
    inner = torch.addmm(view.grad, view.frame, N).addmm_(other.frame, W)
    centre = view.grad_sum * (momentum / count)
    if len(view.shift):
        # The covariances are about the batch's own mean, which is not where the frames have it.
        centre = centre + (view.shift @ view.A).to(N) @ N + (other.shift @ other.A).to(W) @ W
    grad = torch.addmm(-(centre @ At), inner, At)
    if view.share:
        trace = (view.N * (At @ At.mT)).sum()
        mean = view.mean + view.shift if len(view.shift) else view.mean
        grad += (2 * scale * view.share / len(view.A) * trace) * (view.samples - mean.to(grad))
    return grad


def backward_pass(
    grads: list[Tensor], x: Tensor, y: Tensor, forward: Pass, s: Settings
) -> tuple[Tensor, Tensor]:
    """dL/dx and dL/dy from the gradients of `forward.x`, `forward.y` and `forward.correlations`."""
    f = forward
    grad_x, grad_y, grad_d = grads
    count, momentum, share_x, share_y = f.facts.tolist()
    sums = [f.x.mT @ grad_x, f.y.mT @ grad_y, grad_x.sum(0), grad_y.sum(0), grad_d]
    if s.shared:
        sums = [distributed.all_reduce_sum(t) for t in sums]
    P, R, sum_x, sum_y, grad_d = sums
    if s.aligned:
        W, Nx, Ny = aligned_gradients(
            P, R, grad_d, f.correlations, f.divisor, newton_schulz=bool(s.newton_schulz)
        )
    else:
        W, Nx, Ny = canonical_gradients(P, R, grad_d, f.correlations, k=int(s.k), power=s.power)
    of_x = _View(x, f.x, grad_x, sum_x, f.A, f.mean_x, f.shift_x, Nx, share_x)
    of_y = _View(y, f.y, grad_y, sum_y, f.B, f.mean_y, f.shift_y, Ny, share_y)
    return (
        _view_gradient(of_x, of_y, W.mT, momentum, count),
        _view_gradient(of_y, of_x, W, momentum, count),
    )
