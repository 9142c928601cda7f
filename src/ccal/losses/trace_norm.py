"""The trace norm objective of Deep CCA."""

from collections.abc import Sequence
from typing import Literal

from torch import Tensor, nn

from ccal.bounds import Options, Whole, check
from ccal.cca.batch import BatchSettings
from ccal.cca.checks import check_pair, ridge_pair
from ccal.cca.operators import batch_cca
from ccal.cca.precision import working_dtype
from ccal.errors import InputError


class TraceNormLoss(nn.Module):
    r"""Minus the sum (or mean) of the k largest canonical correlations of the batch.

    .. math:: L = - \sum_{i \le k} d_i, \quad S_{xx}^{-1/2} S_{xy} S_{yy}^{-1/2} = T = U diag(d) V'

    For k = min(d_x, d_y) the sum is the trace norm (nuclear norm) of T. The singular values are
    exact, and the gradient U_k V_k' is finite at zero and at coinciding correlations.

    Inputs: x (m, d_x) and y (m, d_y), outputs of the two networks, *not* projected by a CCA layer.
    m should be many times d_x + d_y.

    When to use: to train Deep CCA. Fit CCA on the trained features afterwards
    (`CCALayer.refit`), and retrieve with the projected ones.

    Reference: Andrew, Arora, Bilmes and Livescu, Deep Canonical Correlation Analysis, 2013.

    Args:
        k: how many correlations count; all if not given.
        ridge: added to both covariances, or a pair (ridge_x, ridge_y).
        relative_ridge: the ridge counts in units of the view's mean variance.
        reduction: "sum" (the paper's) or "mean" over the k correlations (its released code's).
        sync: compute statistics over all torch.distributed ranks.

    >>> import torch
    >>> x = torch.randn(1000, 3, generator=torch.Generator().manual_seed(0))
    >>> round(TraceNormLoss()(x, 2 * x).item(), 2)
    -3.0
    """

    def __init__(
        self,
        *,
        k: int | None = None,
        ridge: float | Sequence[float] = 1e-3,
        relative_ridge: bool = False,
        reduction: Literal["sum", "mean"] = "sum",
        sync: bool = True,
    ) -> None:
        super().__init__()
        check("reduction", reduction, Options("sum", "mean"))
        check("k", k, Options(None), Whole(at_least=1))
        self.k, self.reduction = k, reduction
        ridge_x, ridge_y = ridge_pair(ridge)
        self._settings = BatchSettings(
            ridge_x=ridge_x, ridge_y=ridge_y, relative_ridge=relative_ridge, sync=sync
        )

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Loss of a batch: `x` (m, d_x), `y` (m, d_y) -> a scalar."""
        check_pair(x, y)
        limit = min(x.shape[1], y.shape[1])
        k = limit if self.k is None else self.k
        if k > limit:
            raise InputError(f"k = {k} correlations were asked for, but the views have {limit}.")
        correlations = batch_cca(x, y, self._settings).correlations[:k]
        total = correlations.sum() if self.reduction == "sum" else correlations.mean()
        return -total.to(working_dtype(x, y))
