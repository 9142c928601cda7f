"""Collectives with gradients, for statistics and losses that span torch.distributed ranks.

The objective is the sum of the losses of all ranks. DistributedDataParallel averages parameter
gradients over ranks afterwards, which turns that sum into the mean.
"""

from collections.abc import Sequence
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
    def forward(ctx: Any, tensor: Tensor, rows: Sequence[int]) -> Tensor:
        # Collectives want equal shapes: pad to the longest rank, then cut.
        padded = tensor.new_zeros(max(rows), *tensor.shape[1:])
        padded[: len(tensor)] = tensor
        parts = [torch.empty_like(padded) for _ in rows]
        dist.all_gather(parts, padded)
        ctx.first, ctx.length = sum(rows[: rank()]), len(tensor)
        return torch.cat([part[:n] for part, n in zip(parts, rows, strict=True)])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        grad = all_reduce_sum(grad)
        return grad[ctx.first : ctx.first + ctx.length], None


class _AverageGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return all_reduce_sum(grad) / world_size()


def all_reduce_sum(tensor: Tensor) -> Tensor:
    """Sum of `tensor` over ranks; the gradient is summed over ranks too."""
    if world_size() == 1:
        return tensor
    return _AllReduceSum.apply(tensor)  # type: ignore[no-any-return, no-untyped-call]


def all_gather(tensor: Tensor, rows: Sequence[int] | None = None) -> Tensor:
    """Rows of all ranks, in rank order: (n, ...) -> (sum of n, ...); ranks may differ in n.

    `rows` has the n of every rank; without it, the ranks tell each other first.
    """
    ranks = world_size()
    if ranks == 1:
        return tensor
    if rows is None:
        rows = all_gather(torch.tensor([len(tensor)], device=tensor.device), [1] * ranks).tolist()
    return _AllGather.apply(tensor, rows)  # type: ignore[no-any-return, no-untyped-call]


def average_gradient(tensor: Tensor) -> Tensor:
    """The tensor itself; its gradient becomes the mean over ranks, the same on each of them."""
    if world_size() == 1:
        return tensor
    return _AverageGradient.apply(tensor)  # type: ignore[no-any-return, no-untyped-call]


def on_any_rank(flag: bool, device: torch.device) -> bool:
    """Whether the flag is set on any rank, so that all can act on it and none waits for another."""
    if world_size() == 1:
        return flag
    return bool(all_reduce_sum(torch.tensor(float(flag), device=device)))
