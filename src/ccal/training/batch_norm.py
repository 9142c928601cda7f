"""Batch normalisation over the batches of all ranks, and running statistics without bias."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ccal import distributed


def _over_ranks(layer: _BatchNorm, input: Tensor) -> Tensor:
    """A layer's output; in training mode, mean and variance come from the samples of all ranks.

    torch's SyncBatchNorm does the same on GPUs only. Ranks may hold different numbers of samples.
    """
    if not layer.training:
        return type(layer).forward(layer, input)
    layer._check_input_dim(input)
    x = input.to(torch.promote_types(input.dtype, torch.float32))
    over = [d for d in range(x.ndim) if d != 1]
    shape = [-1 if d == 1 else 1 for d in range(x.ndim)]
    local = x.new_tensor([x.numel() // x.shape[1]])
    total = distributed.all_reduce_sum(torch.cat((x.sum(over), local)))
    count, mean = total[-1].detach(), total[:-1] / total[-1].detach()
    centred = x - mean.view(shape)
    # In float32 the mean of squares minus the squared mean would cancel for a large mean.
    variance = distributed.all_reduce_sum(centred.square().sum(over)) / count
    if layer.running_mean is not None and layer.running_var is not None:
        assert layer.num_batches_tracked is not None
        layer.num_batches_tracked.add_(1)
        weight = layer.momentum
        if weight is None:
            weight = 1 / float(layer.num_batches_tracked)
        unbiased = variance.detach() * (count / (count - 1))
        layer.running_mean.lerp_(mean.detach().to(layer.running_mean.dtype), weight)
        layer.running_var.lerp_(unbiased.to(layer.running_var.dtype), weight)
    scale = torch.rsqrt(variance + layer.eps)
    if layer.weight is not None:
        scale = scale * layer.weight
    normal = centred * scale.view(shape)
    if layer.bias is not None:
        normal = normal + layer.bias.view(shape)
    return normal.to(input.dtype)


@contextmanager
def batch_norm_over_ranks(module: nn.Module) -> Iterator[None]:
    """Within, all BatchNorm1d and 2d inside `module` take their statistics over all ranks.

    >>> norm = nn.BatchNorm1d(3)
    >>> with batch_norm_over_ranks(norm):
    ...     norm(torch.randn(5, 3)).shape
    torch.Size([5, 3])
    """
    several = distributed.world_size() > 1
    kinds = (nn.BatchNorm1d, nn.BatchNorm2d)
    layers: list[Any] = [m for m in module.modules() if several and type(m) in kinds]
    for layer in layers:
        layer.forward = partial(_over_ranks, layer)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


@contextmanager
def unbiased_batch_norm(module: nn.Module) -> Iterator[None]:
    """Within, running statistics are the mean over all batches, until momentum gives more weight.

    torch starts them at mean 0 and variance 1, and each batch reduces the weight of that by a
    tenth. If the real variance is 1e-4, as of sums of few one-hot words, the start outweighs the
    data for a hundred batches, and a well trained model is useless in evaluation mode.

    >>> norm = nn.BatchNorm1d(3)
    >>> with unbiased_batch_norm(norm):
    ...     _ = norm(torch.full((5, 3), 7.0))
    >>> norm.running_mean.tolist(), norm.momentum
    ([7.0, 7.0, 7.0], 0.1)
    """

    def set_momentum(least: float, layer: _BatchNorm, _: Any) -> None:
        seen = layer.num_batches_tracked
        if layer.training and seen is not None:
            layer.momentum = max(least, 1 / (int(seen) + 1))

    changed = [
        (layer, weight, layer.register_forward_pre_hook(partial(set_momentum, weight)))
        for layer in module.modules()
        if isinstance(layer, _BatchNorm) and (weight := layer.momentum) is not None
    ]
    try:
        yield
    finally:
        for layer, weight, hook in changed:
            hook.remove()
            layer.momentum = weight
