"""CCA of a batch in one step: two operators, forward and backward, opaque to torch.compile.

The backward never forms a gradient of A or B. In a frame, P = A' dL/dA is x*' dL/dx*, and

    dL/dX = (dL/dX* + 2 / (m - 1) X* Nx + 1 / (m - 1) Y* W') A'

so it costs eight m x d products, all between well-scaled whitened matrices; the ill-conditioned
inverse covariance enters once, at the end. The d x d work runs in float64. The m x d products run
in the precision of the samples where the covariances are well enough conditioned for that, and in
float64 where they are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ccal import distributed
from ccal.cca.checks import check_finite
from ccal.cca.newton_schulz import polar_factor_newton_schulz
from ccal.cca.projections import aligned_frames, canonical_frames, ridge_floor, whitening
from ccal.cca.spectral import aligned_gradients, canonical_gradients
from ccal.cca.statistics import Moments
from ccal.errors import InputError

__all__ = ["BatchCCA", "Settings", "batch_cca"]

# A float32 product leaves an error of about 1e-7 sqrt(S_ii S_jj) in a covariance. Whitening
# multiplies it by up to this number before the products are done again in float64.
_CONDITION_LIMIT = 1e4


class Settings(NamedTuple):
    """How a batch is projected; `CCALayer` says what each means.

    An operator takes plain numbers only, so these travel as a list of floats.
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


class BatchCCA(NamedTuple):
    """CCA of a batch. Gradients flow through `x`, `y` and `correlations`; the rest is for storing.

    `x` (m, d_x) and `y` (m, d_y) are the samples in the frames `A` and `B`. The means and
    covariances, without ridge, are those that the frames were computed from. The Newton-Schulz
    solver does not know the correlations and leaves them zero.
    """

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


def batch_cca(x: Tensor, y: Tensor, settings: Settings, running: Sequence[Tensor] = ()) -> BatchCCA:
    """Project a batch onto its own full frames, with gradients through their computation.

    `x` (m, d_x) and `y` (m, d_y) are checked pairs; half precision is raised to float32.
    `running` is empty, or holds the statistics to be averaged with those of the batch: mean_x,
    mean_y, xx, yy, xy and the number of batches in them.
    """
    dtype = torch.promote_types(torch.promote_types(x.dtype, y.dtype), torch.float32)
    outputs = _forward(x.to(dtype), y.to(dtype), list(running), list(map(float, settings)))
    return BatchCCA(*outputs[:3], *(t.detach() for t in outputs[3:10]))


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


def _with_ridge(
    cov: Tensor, ridge: float, relative: bool, precision: torch.dtype
) -> tuple[Tensor, float, bool]:
    """cov + r I, the share of the mean variance in r (for the gradient), and if r was raised."""
    variance, floor = torch.stack((cov.diagonal().mean(), ridge_floor(cov, precision))).tolist()
    amount, share = (ridge * variance, ridge) if relative else (ridge, 0.0)
    raised = amount < floor
    if raised:
        amount, share = floor, (floor / variance if variance else 0.0)
    cov = cov.clone()
    cov.diagonal().add_(amount)
    return cov, share, raised


class _Whitened(NamedTuple):
    samples: int
    momentum: float
    shift_x: Tensor  # mean of the batch minus mean of the statistics
    shift_y: Tensor
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
    momentum = s.momentum if running and bool(running[5]) else 1.0
    if momentum < 1:
        statistics = [a.lerp(b, momentum) for a, b in zip(running[:5], statistics, strict=True)]
    xx, share_x, raised_x = _with_ridge(statistics[2], s.ridge_x, bool(s.relative_ridge), xc.dtype)
    yy, share_y, raised_y = _with_ridge(statistics[3], s.ridge_y, bool(s.relative_ridge), xc.dtype)
    Wx, Wy = whitening(xx), whitening(yy)
    noise = torch.maximum((Wx.square() @ xx.diagonal()).sum(), (Wy.square() @ yy.diagonal()).sum())
    return _Whitened(
        moments.count,
        momentum,
        moments.mean_x - statistics[0],
        moments.mean_y - statistics[1],
        statistics,
        Wx,
        Wy,
        share_x,
        share_y,
        not (raised_x or raised_y) and bool(noise < _CONDITION_LIMIT),
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


@torch.library.custom_op("ccal::batch_cca", mutates_args=())
def _forward(x: Tensor, y: Tensor, running: list[Tensor], settings: list[float]) -> list[Tensor]:
    s = Settings(*settings)
    with torch.autocast(x.device.type, enabled=False):
        (xc, mean_x), (yc, mean_y) = _centre(x, "x"), _centre(y, "y")
        # Ranks must take the same path, so a group of them never decides by its own rounding.
        exact = x.dtype == torch.float64 or s.shared
        if not exact:
            white = _whitened(xc, yc, (mean_x, mean_y), running, s)
            exact = not white.well_conditioned
        if exact:
            white = _whitened(xc.double(), yc.double(), (mean_x, mean_y), running, s)
        A, B, d, divisor = _frames(white.Wx, white.Wy, white.statistics[4], s, x.dtype)
        # The samples are centred at their own mean, the frames at that of the statistics.
        x_frame = torch.addmm(((mean_x - white.statistics[0]) @ A).to(x), xc, A.to(x))
        y_frame = torch.addmm(((mean_y - white.statistics[1]) @ B).to(y), yc, B.to(y))
    facts = [white.samples, white.momentum, white.share_x, white.share_y]
    shifts = [white.shift_x, white.shift_y]
    outputs = [x_frame, y_frame, d, A, B, *white.statistics, divisor, *shifts]
    return [*(t.contiguous() for t in outputs), torch.tensor(facts, dtype=torch.float64)]


@_forward.register_fake
def _(x: Tensor, y: Tensor, running: list[Tensor], settings: list[float]) -> list[Tensor]:
    s, dx, dy = Settings(*settings), x.shape[1], y.shape[1]
    wide = x.new_empty(0, dtype=torch.float64)
    frames = [(min(dx, dy),), (dx, dx), (dy, dy)]
    statistics = [(dx,), (dy,), (dx, dx), (dy, dy), (dx, dy)]
    extras = [(dx, dx) if s.aligned else (0,), (dx,), (dy,)]
    facts = torch.empty(4, dtype=torch.float64, device="cpu")
    shapes = frames + statistics + extras
    return [x.new_empty(x.shape), y.new_empty(y.shape), *map(wide.new_empty, shapes), facts]


class _View(NamedTuple):
    """One view's part in the backward."""

    samples: Tensor
    frame: Tensor
    grad: Tensor
    grad_mean: Tensor
    A: Tensor
    mean: Tensor
    centre: Tensor  # of the batch of all ranks, in the frame
    N: Tensor
    share: float


def _view_gradient(view: _View, other: _View, W: Tensor, momentum: float, count: int) -> Tensor:
    """dL/dX from the gradient in the frames; `W` leads from the other view's frame to this one."""
    scale = momentum / (count - 1)
    N, W, At = view.N * (2 * scale), W * scale, view.A.mT.to(view.frame)
    inner = torch.addmm(view.grad, view.frame, N).addmm_(other.frame, W)
    centre = momentum * view.grad_mean + view.centre @ N + other.centre @ W
    grad = torch.addmm(-(centre @ At), inner, At)
    if view.share:
        trace = (view.N * (At @ At.mT)).sum()
        grad += (2 * scale * view.share / len(At.mT) * trace) * (view.samples - view.mean)
    return grad


@torch.library.custom_op("ccal::batch_cca_backward", mutates_args=())
def _backward(
    grads: list[Tensor], inputs: list[Tensor], outputs: list[Tensor], settings: list[float]
) -> list[Tensor]:
    s = Settings(*settings)
    x, y = inputs
    grad_x, grad_y, grad_d = grads
    x_frame, y_frame, d, A, B, mean_x, mean_y, divisor, shift_x, shift_y, facts = outputs
    count, momentum, share_x, share_y = facts.tolist()
    with torch.autocast(x.device.type, enabled=False):
        sums = [x_frame.mT @ grad_x, y_frame.mT @ grad_y, grad_x.sum(0), grad_y.sum(0), grad_d]
        if s.shared:
            sums = [distributed.all_reduce_sum(t) for t in sums]
        P, R, sum_x, sum_y, grad_d = sums
        if s.aligned:
            W, Nx, Ny = aligned_gradients(P, R, grad_d, d, divisor, bool(s.newton_schulz))
        else:
            W, Nx, Ny = canonical_gradients(P, R, grad_d, d, k=int(s.k), power=s.power)
        mean_x, mean_y = ((m + c).to(x) for m, c in ((mean_x, shift_x), (mean_y, shift_y)))
        centre_x, centre_y = (shift_x @ A).to(x), (shift_y @ B).to(y)
        of_x = _View(x, x_frame, grad_x, sum_x / count, A, mean_x, centre_x, Nx, share_x)
        of_y = _View(y, y_frame, grad_y, sum_y / count, B, mean_y, centre_y, Ny, share_y)
        return [
            _view_gradient(of_x, of_y, W.mT, momentum, int(count)),
            _view_gradient(of_y, of_x, W, momentum, int(count)),
        ]


@_backward.register_fake
def _(
    grads: list[Tensor], inputs: list[Tensor], outputs: list[Tensor], settings: list[float]
) -> list[Tensor]:
    return [view.new_empty(view.shape) for view in inputs]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    x, y, running, ctx.settings = inputs
    ctx.no_gradient = [None] * len(running)
    ctx.save_for_backward(x, y, *output[:7], *output[10:])


def _autograd(ctx: Any, grads: list[Tensor]) -> tuple[Tensor, Tensor, list[None], None]:
    x, y, *outputs = ctx.saved_tensors
    grad_x, grad_y = _backward([g.contiguous() for g in grads[:3]], [x, y], outputs, ctx.settings)
    return grad_x, grad_y, ctx.no_gradient, None


_forward.register_autograd(_autograd, setup_context=_setup_context)
