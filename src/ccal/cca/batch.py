"""CCA of a batch, forward and backward, in as few products as the mathematics allows.

The backward never forms a gradient of A or B. In a frame (see `spectral`), P = A' dL/dA is
x*' dL/dx*, and

    dL/dX = (dL/dX* - 1 / (m - 1) X* Mx + 1 / (m - 1) Y* W') A'

so it costs eight m x d products, all between well-scaled whitened matrices; the ill-conditioned
inverse covariance enters once, at the end. Everything is computed in the precision of the samples
where the covariances are well enough conditioned for that, and in float64 where they are not.
"""

from math import isfinite
from typing import NamedTuple

import torch
from torch import Tensor

from ccal import distributed
from ccal.cca.checks import check_finite
from ccal.cca.solver import ridge_in_force, solve, whitening
from ccal.cca.spectral import PrecisionError, aligned_gradients, canonical_gradients
from ccal.cca.statistics import Covariances, Moments
from ccal.errors import InputError

# A float32 product leaves an error of about 1e-7 sqrt(S_ii S_jj) in a covariance. If whitening
# multiplies it by more than this, covariances and whitening are computed again in float64.
_CONDITION_LIMIT = 3e3

# Correlations below this share of the largest are lost in the error of float32 covariances.
_SMALL = 1e-4

# The same where one view has more axes: their gradient is divided by one correlation, not by two.
_SMALL_ALONE = 1e-2


class BatchSettings(NamedTuple):
    """How a batch is projected; `CCALayer` explains each.

    All are numbers, because torch's custom operators take lists of numbers.
    """

    ridge_x: float = 1e-3
    ridge_y: float = 1e-3
    relative_ridge: float = False
    momentum: float = 1.0
    aligned: float = False
    k: float = 1
    power: float = 0.0
    sync: float = True

    @property
    def shared(self) -> bool:
        """Whether other ranks take part."""
        return bool(self.sync) and distributed.world_size() > 1


class BatchCCA(NamedTuple):
    """CCA of a batch. Gradients flow through `x`, `y` and `correlations`; the rest is constant.

    `x` (m, d_x) and `y` (m, d_y) are the samples projected by `A` and `B`. The means are those of
    the statistics. What does not apply is empty.
    """

    x: Tensor
    y: Tensor
    correlations: Tensor
    A: Tensor
    B: Tensor
    mean_x: Tensor
    mean_y: Tensor
    V: Tensor  # turns aligned projections into canonical ones
    shift_x: Tensor  # mean of the batch minus the running mean
    shift_y: Tensor
    xx: Tensor  # updated running covariances, without ridge
    yy: Tensor
    xy: Tensor


class Facts(NamedTuple):
    """Numbers that a forward pass computes and the backward needs."""

    samples: float
    momentum: float  # in force
    share_x: float  # of the mean variance in the ridge
    share_y: float
    wide: float  # float64 for projecting the samples, and for the gradients of the samples
    small: float  # float64 for the gradient in the frames: some correlations are small


def _centre(view: Tensor) -> tuple[Tensor, Tensor]:
    """Samples about their mean, and that mean; both to the precision of the samples."""
    if not view.shape[0]:
        return view, view.new_zeros(view.shape[1])
    mean = view.mean(0)
    return view - mean, mean


def _centre_exactly(view: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
    """The same in float64, centred twice to remove rounding: constant features become zero."""
    centred, mean = view.double() - mean, mean.double()
    if not centred.shape[0]:
        return centred, mean
    rest = centred.mean(0)
    return centred - rest, mean + rest


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
        # addmm scales the product while it is written.
        torch.addmm(nothing, left, right, beta=0, alpha=share)
        for left, right in ((xt, xc), (yt, yc), (xt, yc))
    )
    return samples, [*means, *products]


def _solve(
    xc: Tensor,
    yc: Tensor,
    means: tuple[Tensor, Tensor],
    running: list[Tensor],
    s: BatchSettings,
    precision: torch.dtype,
    *,
    tentative: bool = False,
) -> tuple[BatchCCA, Facts]:
    """CCA of samples that are centred about `means`; `x` and `y` of the result are these samples.

    Statistics are averaged with `running`. A tentative solution raises `PrecisionError` if it needs
    float64.
    """
    samples, statistics = _statistics(xc, yc, means, s.shared)
    if samples < 2:
        raise InputError(
            f"CCA needs at least 2 samples, got {samples}; use many times more than "
            f"the dimension ({max(xc.shape[1], yc.shape[1])})."
        )
    momentum = 1.0
    shift_x, shift_y, *kept = (xc.new_empty(0) for _ in range(5))
    if running:
        # The first batch has nothing to be averaged with.
        momentum = s.momentum if bool(running[5]) else 1.0
        batch_x, batch_y = statistics[:2]
        statistics = [a.lerp(b, momentum) for a, b in zip(running[:5], statistics, strict=True)]
        shift_x, shift_y = batch_x - statistics[0], batch_y - statistics[1]
        kept = [cov.clone() for cov in statistics[2:]]
    mean_x, mean_y, xx, yy, xy = statistics
    share_x, Wx, safe_x = _whiten(xx, means[0], s.ridge_x, bool(s.relative_ridge))
    share_y, Wy, safe_y = _whiten(yy, means[1], s.ridge_y, bool(s.relative_ridge))
    wide, least_share = not (safe_x and safe_y), _SMALL if tentative else 0.0
    if tentative and wide:
        raise PrecisionError
    cov, aligned = Covariances(xx, yy, xy), bool(s.aligned)
    A, B, d, V = solve(cov, (Wx, Wy), aligned=aligned, precision=precision, least_share=least_share)
    small = d[-1].item() < (_SMALL if len(A) == len(B) else _SMALL_ALONE) * d[0].item()
    if tentative and small:
        raise PrecisionError
    found = BatchCCA(xc, yc, d, A, B, mean_x, mean_y, V, shift_x, shift_y, *kept)
    return found, Facts(samples, momentum, share_x, share_y, wide, small)


def _whiten(cov: Tensor, mean: Tensor, ridge: float, relative: bool) -> tuple[float, Tensor, bool]:
    """Add the ridge in place: its share of the mean variance, W, and whether float32 is safe."""
    amount, share, variance = ridge_in_force(cov, ridge, relative=relative)
    cov.diagonal().add_(amount)
    W = whitening(cov)
    # Whitening amplifies errors of covariance and mean, relative to their size, by the sum of
    # W_ii^2 S_ii: the variance of a feature over what earlier features leave of it unexplained.
    size = torch.addcmul(cov.diagonal(), mean, mean)
    amplification = torch.dot(W.diagonal().square(), size).item()
    # Squares of tiny samples vanish in float32.
    varied = variance > 1e8 * torch.finfo(cov.dtype).tiny
    return share, W, varied and amplification < _CONDITION_LIMIT


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
    x: Tensor, y: Tensor, running: list[Tensor], s: BatchSettings
) -> tuple[BatchCCA, Facts]:
    """The projected batch, its projections, and facts; see `batch_cca` for the arguments."""
    (xc, at_x), (yc, at_y) = _centre(x), _centre(y)
    # Running averages are float64. Ranks must take the same path, so float32 is not tried there.
    exact = x.dtype == torch.float64 or s.shared or bool(running)
    if not exact:
        try:
            found, facts = _solve(xc, yc, (at_x, at_y), running, s, x.dtype, tentative=True)
        except (torch.linalg.LinAlgError, PrecisionError):  # type: ignore[attr-defined]
            exact = True
    if exact:
        _check_finite(x, y, at_x, at_y, s.shared)
        (xw, mean_x), (yw, mean_y) = _centre_exactly(x, at_x), _centre_exactly(y, at_y)
        try:
            found, facts = _solve(xw, yw, (mean_x, mean_y), running, s, x.dtype)
        except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
            raise InputError(
                "The covariances of the batch cannot be factorised, not even in float64: scale the "
                "features to variances around 1, or raise the ridge."
            ) from error
    A, B = found.A, found.B
    wide = x.dtype == torch.float64 or bool(facts.wide)
    small = exact and (wide or bool(facts.small))
    if s.shared:
        # The backward adds up tensors of all ranks, which must have one dtype.
        small = distributed.on_any_rank(small, x.device)
    if wide:
        # The difference of repeated features must be zero, not rounding error that A multiplies:
        # otherwise gradients have errors of 1e-3 and more.
        xs, ys = (xw @ A).to(x), (yw @ B).to(y)
        at_x, at_y = mean_x, mean_y
    else:
        xs = xc @ A.to(x)
        # Reuse memory: the system would have to clear new pages first.
        spare = xc if xc.shape == yc.shape and xc is not x else None
        ys = torch.mm(yc, B.to(y), out=spare)
    if exact:
        # From the mean of the batch to that of the statistics.
        xs += ((at_x - found.mean_x) @ A).to(x)
        ys += ((at_y - found.mean_y) @ B).to(y)
    return found._replace(x=xs, y=ys), facts._replace(wide=wide, small=small)


def backward_pass(
    grads: tuple[Tensor, Tensor, Tensor | None],
    x: Tensor,
    y: Tensor,
    f: BatchCCA,
    facts: Facts,
    s: BatchSettings,
) -> tuple[Tensor, Tensor]:
    """dL/dx and dL/dy from the gradients of `f.x`, `f.y` and `f.correlations`.

    `f` and `facts` come from the forward pass. The gradient of the correlations is None if the loss
    does not use them.
    """
    samples, momentum, share_x, share_y, wide, small = facts
    grad_d = grads[2]
    kind, inside = (torch.float64 if needed else x.dtype for needed in (wide, small))
    xs, ys, A, B, grad_x, grad_y = (t.to(kind) for t in (f.x, f.y, f.A, f.B, *grads[:2]))
    P, R = (a.to(inside).mT @ b.to(inside) for a, b in ((xs, grad_x), (ys, grad_y)))
    sums = [P, R, grad_x.sum(0, dtype=inside), grad_y.sum(0, dtype=inside)]
    if s.shared:
        # all_reduce needs the same number of tensors on every rank.
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
    if len(f.shift_x):
        # The covariances are about the mean of the batch, xs and ys about the running mean.
        at_x, at_y = f.shift_x.to(kind) @ A, f.shift_y.to(kind) @ B
        share = samples / (samples - 1)
        sum_x += share * (W @ at_y - at_x @ Mx)
        sum_y += share * (at_x @ W - at_y @ My)
    inner = torch.add(grad_x, sum_x, alpha=centring)
    inner.addmm_(xs, Mx, alpha=-scale).addmm_(ys, W.mT, alpha=scale)
    result_x = inner @ A.mT
    spare = inner if inner.shape == ys.shape else torch.empty_like(ys)
    torch.add(grad_y, sum_y, alpha=centring, out=spare)
    result_y = spare.addmm_(ys, My, alpha=-scale).addmm_(xs, W, alpha=scale) @ B.mT
    if share_x:
        result_x -= scale * _ridge_gradient(x, f.mean_x, f.shift_x, A, Mx, share_x)
    if share_y:
        result_y -= scale * _ridge_gradient(y, f.mean_y, f.shift_y, B, My, share_y)
    return result_x.to(x), result_y.to(y)


def _ridge_gradient(
    view: Tensor, mean: Tensor, shift: Tensor, A: Tensor, M: Tensor, share: float
) -> Tensor:
    """Gradient of the samples through a ridge that is a share of their mean variance."""
    trace = (M * (A.mT @ A)).sum()
    centre = mean + shift if len(shift) else mean
    return (share / len(A) * trace) * (view.to(A) - centre.to(A))
