"""Means and covariances of paired views: exact, streaming, mergeable, and shared over ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ccal import distributed
from ccal.cca.checks import check_finite, check_pair
from ccal.errors import InputError


@dataclass(frozen=True)
class Covariances:
    """Covariances of two views: `xx` (d_x, d_x), `yy` (d_y, d_y), `xy` (d_x, d_y), float64."""

    xx: Tensor
    yy: Tensor
    xy: Tensor


@dataclass(frozen=True)
class Moments:
    """Sufficient statistics of n paired samples, in float64.

    `mean_x` (d_x,) and `mean_y` (d_y,) are the means; `xx`, `yy` and `xy` the sums of products of
    centred samples, so that a covariance is a sum divided by n - 1. Every operation is
    differentiable in the samples.

    >>> import torch
    >>> x, y = torch.randn(100, 3), torch.randn(100, 2)
    >>> halves = Moments.of(x[:40], y[:40]) + Moments.of(x[40:], y[40:])
    >>> torch.allclose(halves.covariances().xy, Moments.of(x, y).covariances().xy)
    True
    """

    count: int
    mean_x: Tensor
    mean_y: Tensor
    xx: Tensor
    yy: Tensor
    xy: Tensor

    @classmethod
    def of(cls, x: Tensor, y: Tensor) -> Moments:
        """Moments of one chunk: `x` (n, d_x) and `y` (n, d_y), of any floating dtype."""
        check_pair(x, y)
        x, y = x.double(), y.double()
        mean_x, mean_y = (view.sum(0) / max(1, len(view)) for view in (x, y))
        xc, yc = x - mean_x, y - mean_y
        return cls(len(x), mean_x, mean_y, xc.mT @ xc, yc.mT @ yc, xc.mT @ yc)

    def __add__(self, other: Moments) -> Moments:
        """Moments of both sets of samples together (Chan, Golub and LeVeque 1983)."""
        count = self.count + other.count
        share = other.count / max(1, count)
        gap_x, gap_y = other.mean_x - self.mean_x, other.mean_y - self.mean_y
        between = self.count * share
        return Moments(
            count,
            self.mean_x + share * gap_x,
            self.mean_y + share * gap_y,
            self.xx + other.xx + between * torch.outer(gap_x, gap_x),
            self.yy + other.yy + between * torch.outer(gap_y, gap_y),
            self.xy + other.xy + between * torch.outer(gap_x, gap_y),
        )

    def scaled(self, x: Tensor, y: Tensor) -> Moments:
        """Moments of the same samples with each feature multiplied by its x (d_x,) or y (d_y,)."""
        return Moments(
            self.count,
            self.mean_x * x,
            self.mean_y * y,
            self.xx * torch.outer(x, x),
            self.yy * torch.outer(y, y),
            self.xy * torch.outer(x, y),
        )

    def all_reduce(self) -> Moments:
        """Moments of the samples of all torch.distributed ranks, with gradients to each of them.

        Without an initialised process group this is the identity.
        """
        if distributed.world_size() == 1:
            return self
        means = torch.cat((self.mean_x, self.mean_y))
        head = torch.cat((means * self.count, means.new_tensor([self.count])))
        head = distributed.all_reduce_sum(head)
        count = int(head[-1].item())
        mean = head[:-1] / count
        mean_x, mean_y = (m.clone() for m in mean.split([len(self.mean_x), len(self.mean_y)]))
        gap_x, gap_y = self.mean_x - mean_x, self.mean_y - mean_y
        products = (
            self.xx + self.count * torch.outer(gap_x, gap_x),
            self.yy + self.count * torch.outer(gap_y, gap_y),
            self.xy + self.count * torch.outer(gap_x, gap_y),
        )
        flat = distributed.all_reduce_sum(torch.cat([p.flatten() for p in products]))
        xx, yy, xy = (
            part.view_as(p).clone()
            for part, p in zip(flat.split([p.numel() for p in products]), products, strict=True)
        )
        return Moments(count, mean_x, mean_y, xx, yy, xy)

    def covariances(self) -> Covariances:
        """Unbiased covariances: the sums divided by n - 1."""
        if self.count < 2:
            raise InputError(f"Covariances need at least 2 samples, got {self.count}.")
        scale = 1 / (self.count - 1)
        return Covariances(self.xx * scale, self.yy * scale, self.xy * scale)


def streamed(
    pairs: Iterable[Sequence[Tensor]], dim_x: int, dim_y: int, device: torch.device, *, sync: bool
) -> Moments:
    """Moments of batches (x, y, ...), which are checked; with `sync`, of those of all ranks.

    A rank may have no batches. If one rank refuses its pairs, all ranks raise an error, so that
    none waits for another.
    """
    nothing = (torch.empty(0, dim, device=device) for dim in (dim_x, dim_y))
    total, refusal = Moments.of(*nothing), None
    try:
        if not isinstance(pairs, Iterable):
            raise InputError(
                f"pairs must be two matrices (x, y) or an iterable of such batches, "
                f"got {type(pairs).__name__}."
            )
        for batch in pairs:
            if not isinstance(batch, Sequence) or len(batch) < 2:
                raise InputError(
                    f"Each batch must be a pair (x, y) of matrices, got {type(batch).__name__}; "
                    "pass batches, or one pair of tensors."
                )
            # Further entries, such as labels, are ignored.
            x, y = batch[:2]
            check_pair(x, y, dim_x, dim_y)
            check_finite(x, "x")
            check_finite(y, "y")
            moments = Moments.of(x, y)
            # The first batch replaces the empty moments: it may be on another device.
            total = total + moments if total.count else moments
    except InputError as error:
        refusal = error
    refused = refusal is not None
    if sync:
        refused = distributed.on_any_rank(refused, device)
    if refused:
        raise refusal or InputError("The pairs of another rank were refused; see its error.")
    return total.all_reduce() if sync else total
