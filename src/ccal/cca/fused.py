"""CCA of a batch, forward and backward, in as few products as the mathematics allows.

The backward never forms a gradient of A or B. In a frame, P = A' dL/dA is x*' dL/dx*, and

    dL/dX = (dL/dX* - 1 / (m - 1) X* Mx + 1 / (m - 1) Y* W') A'

so it costs eight m x d products, all between well-scaled whitened matrices; the ill-conditioned
inverse covariance enters once, at the end. Everything is computed in the precision of the samples
where the covariances are well enough conditioned for that, and in float64 where they are not.
"""

from __future__ import annotations

from math import isfinite
from typing import NamedTuple

import torch
from torch import Tensor

from ccal import distributed
from ccal.cca.checks import check_finite
from ccal.cca.projections import aligned_frames, canonical_frames
from ccal.cca.settings import Settings
from ccal.cca.spectral import (
    SmallSingularValueError,
    aligned_gradients,
    canonical_gradients,
    singular_frames,
)
from ccal.cca.whitened import Whitened, centre, centre_exactly, whitened
from ccal.errors import InputError

__all__ = ["Facts", "Pass", "backward_pass", "forward_pass"]

# Correlations below this share of the largest are lost in the error of float32 covariances.
_SMALL = 1e-4

# The same where one view has more axes: what turns those is divided by one correlation, not by two.
_SMALL_ALONE = 1e-2


class Pass(NamedTuple):
    """What a forward pass computes and the backward needs."""

    x: Tensor
    y: Tensor
    correlations: Tensor
    A: Tensor
    B: Tensor
    mean_x: Tensor
    mean_y: Tensor
    V: Tensor  # turns aligned frames into canonical ones; empty if they are canonical
    shift_x: Tensor | None  # mean of the batch minus that of the statistics, if it may differ
    shift_y: Tensor | None


class Facts(NamedTuple):
    """The numbers among it."""

    samples: float
    momentum: float  # in force
    share_x: float  # of the mean variance in the ridge
    share_y: float
    wide: float  # samples take float64 to be projected, and gradients on their way back
    small: float  # the gradient in the frames takes float64: there are small correlations


class _Frames(NamedTuple):
    A: Tensor
    B: Tensor
    d: Tensor
    V: Tensor


def _frames(
    white: Whitened, s: Settings, precision: torch.dtype, least_share: float = 0.0
) -> _Frames:
    """Frames, correlations, and V where the frames are aligned."""
    Wx, Wy = white.Wx, white.Wy
    found = singular_frames(white.T, precision, least_share=least_share, noise=white.noise)
    if s.aligned:
        return _Frames(*aligned_frames(Wx, Wy, found))
    return _Frames(*canonical_frames(Wx, Wy, found), Wx.new_empty(0))


def _small_correlations(frames: _Frames) -> bool:
    """Whether one is a share of the largest that counts as small."""
    share = _SMALL if len(frames.A) == len(frames.B) else _SMALL_ALONE
    return frames.d[-1].item() < share * frames.d[0].item()


def _check_finite(x: Tensor, y: Tensor, at_x: Tensor, at_y: Tensor, shared: bool) -> None:
    """Refuse NaN and infinite values, of all ranks if they take part."""
    bad = not isfinite((at_x.sum() + at_y.sum()).item())
    if bad:
        bad = not bool(torch.isfinite(x).all() and torch.isfinite(y).all())
    if shared:
        bad = distributed.on_any_rank(bad, x.device)
    if bad:
        check_finite(x, "x")
        check_finite(y, "y")
        raise InputError("x or y of another rank contains NaN or infinite values; see its error.")


def forward_pass(
    x: Tensor, y: Tensor, running: list[Tensor], s: Settings
) -> tuple[Pass, list[Tensor], Facts]:
    """Frames of the batch and the batch in them, the covariances xx, yy, xy, and some numbers.

    The covariances are for running averages, and empty without them. See `batch_cca` for the
    arguments.
    """
    (xc, at_x), (yc, at_y) = centre(x), centre(y)
    # Running averages are float64. Ranks must take the same path, so rounding does not decide.
    exact = x.dtype == torch.float64 or s.shared or bool(running)
    if not exact:
        try:
            white = whitened(xc, yc, (at_x, at_y), running, s)
            exact = not white.well_conditioned
            if not exact:
                frames = _frames(white, s, x.dtype, _SMALL)
                exact = _small_correlations(frames)
        except (torch.linalg.LinAlgError, SmallSingularValueError):  # type: ignore[attr-defined]
            exact = True
    if exact:
        _check_finite(x, y, at_x, at_y, s.shared)
        (xw, mean_x), (yw, mean_y) = centre_exactly(x, at_x), centre_exactly(y, at_y)
        try:
            white = whitened(xw, yw, (mean_x, mean_y), running, s)
            frames = _frames(white, s, x.dtype)
        except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
            raise InputError(
                "The covariances of the batch cannot be factorised, not even in float64: scale the "
                "features to variances around 1, or raise the ridge."
            ) from error
    A, B, d, V = frames
    wide = x.dtype == torch.float64 or not white.well_conditioned
    small = exact and (wide or _small_correlations(frames))
    if s.shared:
        # What ranks add up in the backward must be of one kind.
        small = distributed.on_any_rank(small, x.device)
    if wide:
        # Where features repeat, what remains of their difference is zero, not rounding error that
        # the frames multiply: without this gradients have errors of 1e-3 and more.
        x_frame, y_frame = (xw @ A).to(x), (yw @ B).to(y)
        at_x, at_y = mean_x, mean_y
    else:
        x_frame = xc @ A.to(x)
        # Into memory that is there already: the system clears what it gives, page by page.
        spare = xc if xc.shape == yc.shape and xc is not x else None
        y_frame = torch.mm(yc, B.to(y), out=spare)
    if exact:
        # From where the samples are centred to where the frames are.
        x_frame += ((at_x - white.mean_x) @ A).to(x)
        y_frame += ((at_y - white.mean_y) @ B).to(y)
    shares = white.share_x, white.share_y
    facts = Facts(white.samples, white.momentum, *shares, wide, small)
    means = white.mean_x, white.mean_y
    saved = Pass(x_frame, y_frame, d, A, B, *means, V, *white.shifts)
    return saved, white.covariances, facts


def backward_pass(
    grads: tuple[Tensor, Tensor, Tensor | None],
    x: Tensor,
    y: Tensor,
    forward: Pass,
    facts: Facts,
    s: Settings,
) -> tuple[Tensor, Tensor]:
    """dL/dx and dL/dy from the gradients of `forward.x`, `forward.y` and `forward.correlations`.

    That of the correlations is None where the loss does not see them.
    """
    samples, momentum, share_x, share_y, wide, small = facts
    f, grad_d = forward, grads[2]
    kind, inside = (torch.float64 if needed else x.dtype for needed in (wide, small))
    x_frame, y_frame, A, B, grad_x, grad_y = (t.to(kind) for t in (f.x, f.y, f.A, f.B, *grads[:2]))
    P, R = (a.to(inside).mT @ b.to(inside) for a, b in ((x_frame, grad_x), (y_frame, grad_y)))
    sums = [P, R, grad_x.sum(0, dtype=inside), grad_y.sum(0, dtype=inside)]
    if s.shared:
        # All ranks must sum as many.
        sums.append(torch.zeros_like(f.correlations) if grad_d is None else grad_d)
        *sums, grad_d = [distributed.all_reduce_sum(t) for t in sums]
    P, R, sum_x, sum_y = sums
    if s.aligned:
        found = aligned_gradients(P, R, grad_d, f.correlations, f.V)
    else:
        found = canonical_gradients(
            P, R, grad_d, f.correlations, k=int(s.k), power=s.power, precision=x.dtype
        )
    W, Mx, My = (gradient.to(kind) for gradient in found)
    sum_x, sum_y = sum_x.to(kind), sum_y.to(kind)
    scale, centring = momentum / (samples - 1), -momentum / samples
    if f.shift_x is not None and f.shift_y is not None:
        # The covariances are about the batch's own mean, which is not where the frames have it.
        at_x, at_y = f.shift_x.to(kind) @ A, f.shift_y.to(kind) @ B
        share = samples / (samples - 1)
        sum_x += share * (W @ at_y - at_x @ Mx)
        sum_y += share * (at_x @ W - at_y @ My)
    inner = torch.add(grad_x, sum_x, alpha=centring)
    inner.addmm_(x_frame, Mx, alpha=-scale).addmm_(y_frame, W.mT, alpha=scale)
    result_x = inner @ A.mT
    spare = inner if inner.shape == y_frame.shape else torch.empty_like(y_frame)
    torch.add(grad_y, sum_y, alpha=centring, out=spare)
    result_y = spare.addmm_(y_frame, My, alpha=-scale).addmm_(x_frame, W, alpha=scale) @ B.mT
    if share_x:
        result_x -= scale * _ridge_gradient(x, f.mean_x, f.shift_x, A, Mx, share_x)
    if share_y:
        result_y -= scale * _ridge_gradient(y, f.mean_y, f.shift_y, B, My, share_y)
    return result_x.to(x), result_y.to(y)


def _ridge_gradient(
    view: Tensor, mean: Tensor, shift: Tensor | None, A: Tensor, M: Tensor, share: float
) -> Tensor:
    """Through a ridge that is a share of the mean variance, to the samples."""
    trace = (M * (A.mT @ A)).sum()
    centre = mean if shift is None else mean + shift
    return (share / len(A) * trace) * (view.to(A) - centre.to(A))
