"""Half precision raised to full, and gradients that stay finite on their way back."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["raised"]


class _Raised(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dtype: torch.dtype) -> Tensor:
        ctx.dtype = x.dtype
        return x.to(dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        limit = torch.finfo(ctx.dtype).max
        return grad.clamp(-limit, limit).to(ctx.dtype), None


def raised(x: Tensor, dtype: torch.dtype) -> Tensor:
    """`x` in a wider dtype; gradients too large for its own become the largest it has.

    float16 ends at 65504, and gradients grow as samples shrink.

    >>> x = torch.ones(1, dtype=torch.float16, requires_grad=True)
    >>> (1e6 * raised(x, torch.float32)).backward()
    >>> x.grad
    tensor([65504.], dtype=torch.float16)
    """
    if x.dtype is dtype:
        return x
    return _Raised.apply(x, dtype)  # type: ignore[no-any-return, no-untyped-call]
