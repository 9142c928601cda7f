"""Statistics of a batch, its whitening, and T, in the precision of the samples that are given."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ccal.cca.projections import reach, ridge_floor, whitening
from ccal.cca.settings import Settings
from ccal.cca.statistics import Moments
from ccal.errors import InputError

__all__ = ["Whitened", "centre", "centre_exactly", "whitened"]

# A float32 product leaves an error of about 1e-7 sqrt(S_ii S_jj) in a covariance. Whitening may
# multiply it by about this number before covariances and whitening are done again in float64.
_CONDITION_LIMIT = 3e3


def centre(view: Tensor) -> tuple[Tensor, Tensor]:
    """Samples about their mean, and that mean; both to the precision of the samples."""
    if not view.shape[0]:
        return view, view.new_zeros(view.shape[1])
    mean = view.mean(0)
    return view - mean, mean


def centre_exactly(view: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
    """The same in float64, and without what rounding leaves: constant features become zero."""
    centred, mean = view.double() - mean, mean.double()
    if not centred.shape[0]:
        return centred, mean
    rest = centred.mean(0)
    return centred - rest, mean + rest


def _add_ridge(cov: Tensor, ridge: float, relative: bool) -> tuple[float, bool]:
    """Add the ridge in place; the share of the mean variance in it, for the gradient.

    And whether there is any variance that the dtype can hold.
    """
    floor = ridge_floor(cov)
    amount, share = ridge, 0.0
    diagonal = cov.diagonal()
    variance = diagonal.mean().item()
    if relative or ridge < floor:
        amount = max(ridge * variance if relative else ridge, floor)
        share = amount / variance if variance and (relative or amount == floor) else 0.0
    diagonal.add_(amount)
    return share, variance > 1e8 * torch.finfo(cov.dtype).tiny


def _amplification(W: Tensor, cov: Tensor, mean: Tensor) -> float:
    """By how much whitening amplifies errors of covariance and mean, relative to their size.

    W_ii^2 S_ii is the variance of a feature over what earlier features leave of it unexplained.
    """
    size = torch.addcmul(cov.diagonal(), mean, mean)
    return torch.dot(W.diagonal().square(), size).item()


class Whitened(NamedTuple):
    """Statistics of a batch, and what whitens its views."""

    samples: int
    momentum: float
    mean_x: Tensor
    mean_y: Tensor
    covariances: list[Tensor]  # what running averages go on from; empty without them
    shifts: tuple[Tensor | None, Tensor | None]
    Wx: Tensor
    Wy: Tensor
    T: Tensor
    noise: tuple[Tensor, Tensor] | None  # rounding in T, as `singular_frames` wants it
    share_x: float
    share_y: float
    well_conditioned: bool


def _statistics(
    xc: Tensor, yc: Tensor, means: tuple[Tensor, Tensor], shared: bool
) -> tuple[int, list[Tensor]]:
    """Samples, means and covariances of the batch, or of the batches of all ranks."""
    samples, xt, yt = xc.shape[0], xc.mT, yc.mT
    if shared:
        moments = Moments(samples, *means, xt @ xc, yt @ yc, xt @ yc).all_reduce()
        cov = moments.covariances()
        return moments.count, [moments.mean_x, moments.mean_y, cov.xx, cov.yy, cov.xy]
    share, nothing = 1 / max(samples - 1, 1), xc.new_empty(1, 1)
    products = (
        # A product that is scaled on its way.
        torch.addmm(nothing, left, right, beta=0, alpha=share)
        for left, right in ((xt, xc), (yt, yc), (xt, yc))
    )
    return samples, [*means, *products]


def whitened(
    xc: Tensor, yc: Tensor, means: tuple[Tensor, Tensor], running: list[Tensor], s: Settings
) -> Whitened:
    """Whitening and T of samples that are centred about `means`, averaged with `running` ones."""
    samples, statistics = _statistics(xc, yc, means, s.shared)
    if samples < 2:
        raise InputError(
            f"CCA needs at least 2 samples, got {samples}; it wants many times more than "
            f"the dimension ({max(xc.shape[1], yc.shape[1])})."
        )
    momentum = 1.0
    kept: list[Tensor] = []
    shift_x = shift_y = None
    if running:
        # The first batch has nothing to be averaged with.
        momentum = s.momentum if bool(running[5]) else 1.0
        batch_x, batch_y = statistics[:2]
        statistics = [a.lerp(b, momentum) for a, b in zip(running[:5], statistics, strict=True)]
        shift_x, shift_y = batch_x - statistics[0], batch_y - statistics[1]
        kept = [cov.clone() for cov in statistics[2:]]
    mean_x, mean_y, xx, yy, xy = statistics
    share_x, varied_x = _add_ridge(xx, s.ridge_x, bool(s.relative_ridge))
    share_y, varied_y = _add_ridge(yy, s.ridge_y, bool(s.relative_ridge))
    identity = torch.eye(len(xx), dtype=xx.dtype, device=xx.device)
    Wx, Wy = whitening(xx, identity), whitening(yy, identity if len(xx) == len(yy) else None)
    well_conditioned = (
        varied_x
        and varied_y
        and _amplification(Wx, xx, means[0]) < _CONDITION_LIMIT
        and _amplification(Wy, yy, means[1]) < _CONDITION_LIMIT
    )
    T = Wx @ xy @ Wy.mT
    noise = (reach(Wx, xx), reach(Wy, yy)) if T.dtype == torch.float64 else None
    return Whitened(
        samples,
        momentum,
        mean_x,
        mean_y,
        kept,
        (shift_x, shift_y),
        Wx,
        Wy,
        T,
        noise,
        share_x,
        share_y,
        well_conditioned,
    )
