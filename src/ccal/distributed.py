"""Collectives with gradients, for statistics and losses that span torch.distributed ranks.

The objective is the sum of the losses of all ranks. DistributedDataParallel averages parameter
gradients over ranks afterwards, which turns that sum into the mean.
"""

from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist


def world_size() -> int:
    """Number of ranks; 1 when no process group is initialised."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Index of this process among the ranks; 0 when no process group is initialised."""
    return dist.get_rank() if world_size() > 1 else 0


class _AllReduceSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        total = tensor.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return all_reduce_sum(grad)


class _AllGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        length = torch.tensor([len(tensor)], device=tensor.device)
        lengths = [torch.empty_like(length) for _ in range(world_size())]
        dist.all_gather(lengths, length)
        rows = [int(n.item()) for n in lengths]
        # Collectives want equal shapes: pad to the longest rank, then cut.
        padded = tensor.new_zeros(max(rows), *tensor.shape[1:])
        padded[: len(tensor)] = tensor
        parts = [torch.empty_like(padded) for _ in rows]
        dist.all_gather(parts, padded)
        ctx.first, ctx.length = sum(rows[: rank()]), len(tensor)
        return torch.cat([part[:n] for part, n in zip(parts, rows, strict=True)])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        grad = all_reduce_sum(grad)
        return grad[ctx.first : ctx.first + ctx.length]


def all_reduce_sum(tensor: Tensor) -> Tensor:
    """Sum of `tensor` over ranks; the gradient is summed over ranks too."""
    if world_size() == 1:
        return tensor
    return _AllReduceSum.apply(tensor)  # type: ignore[no-any-return, no-untyped-call]


def all_gather(tensor: Tensor) -> Tensor:
    """Rows of all ranks, in rank order: (n, ...) -> (sum of n, ...); ranks may differ in n."""
    if world_size() == 1:
        return tensor
    return _AllGather.apply(tensor)  # type: ignore[no-any-return, no-untyped-call]


def on_any_rank(flag: bool, device: torch.device) -> bool:
    """Whether the flag is set on any rank, so that all can act on it and none waits for another."""
    if world_size() == 1:
        return flag
    return bool(all_reduce_sum(torch.tensor(float(flag), device=device)))
