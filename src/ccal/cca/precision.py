"""The precision to compute in: half is upcast to float32, and autocast is kept out."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor


def working_dtype(x: Tensor, y: Tensor) -> torch.dtype:
    """float64 if either view has it, else float32: half cannot hold a sum over a batch."""
    return torch.promote_types(torch.promote_types(x.dtype, y.dtype), torch.float32)


def full_precision(x: Tensor) -> AbstractContextManager[object]:
    """No autocast; cheaper than `torch.autocast` where there is none to switch off."""
    device = x.device.type
    if torch.is_autocast_enabled(device):
        return torch.autocast(device, enabled=False)
    return nullcontext()


class _Upcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dtype: torch.dtype) -> Tensor:
        ctx.dtype = x.dtype
        return x.to(dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        limit = torch.finfo(ctx.dtype).max
        return grad.clamp(-limit, limit).to(ctx.dtype), None


def upcast(x: Tensor, dtype: torch.dtype) -> Tensor:
    """`x` in a wider dtype; a gradient too large for the dtype of `x` becomes its largest number.

    float16 ends at 65504, and gradients grow as samples shrink.

    >>> x = torch.ones(1, dtype=torch.float16, requires_grad=True)
    >>> (1e6 * upcast(x, torch.float32)).backward()
    >>> x.grad
    tensor([65504.], dtype=torch.float16)
    """
    if x.dtype is dtype:
        return x
    return _Upcast.apply(x, dtype)  # type: ignore[no-any-return, no-untyped-call]
