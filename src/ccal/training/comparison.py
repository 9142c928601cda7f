"""Which of two models finds the validation pairs better, and whether that is more than luck."""

from __future__ import annotations

import torch
from torch import Tensor

from ccal.ranks import counterpart_ranks

__all__ = ["clearly_better", "reciprocal_ranks"]


def reciprocal_ranks(x: Tensor, y: Tensor) -> Tensor:
    """1 / rank (n,) of pairs (n, k), the mean of both directions; ties count against them."""
    ranks = [counterpart_ranks(a, b, pessimistic=True) for a, b in ((x, y), (y, x))]
    return torch.stack(ranks).double().reciprocal().mean(0)


def clearly_better(one: Tensor, other: Tensor) -> bool:
    """Whether the mean of `one` (n,) exceeds that of `other` by more than its standard error.

    Of many tries on few pairs the best is often the luckiest.

    >>> clearly_better(torch.tensor([0.9, 1.0, 0.8]), torch.tensor([0.5, 0.6, 0.5]))
    True
    """
    difference = one - other
    error = difference.std() / len(difference) ** 0.5 if len(difference) > 1 else 0.0
    return bool(difference.mean() > error)
