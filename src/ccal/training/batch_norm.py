"""Batch normalisation over the batches of all ranks, and running statistics without bias."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ccal import distributed


class _OverRanks(nn.modules.batchnorm._BatchNorm):
    """In training mode, mean and variance come from the samples of all ranks, with gradients.

    torch's SyncBatchNorm does the same on GPUs only. Ranks may hold different numbers of samples.
    """

    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return super().forward(input)
        self._check_input_dim(input)  # type: ignore[no-untyped-call]
        x = input.to(torch.promote_types(input.dtype, torch.float32))
        over = [d for d in range(x.ndim) if d != 1]
        shape = [-1 if d == 1 else 1 for d in range(x.ndim)]
        local = x.new_tensor([x.numel() // x.shape[1]])
        total = distributed.all_reduce_sum(torch.cat((x.sum(over), local)))
        count, mean = total[-1].detach(), total[:-1] / total[-1].detach()
        centred = x - mean.view(shape)
        # In float32 the mean of squares minus the squared mean would cancel for a large mean.
        variance = distributed.all_reduce_sum(centred.square().sum(over)) / count
        self._remember(mean.detach(), variance.detach() * (count / (count - 1)))
        scale = torch.rsqrt(variance + self.eps)
        if self.weight is not None:
            scale = scale * self.weight
        normal = centred * scale.view(shape)
        if self.bias is not None:
            normal = normal + self.bias.view(shape)
        return normal.to(input.dtype)

    @torch.no_grad()
    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        if self.running_mean is None or self.running_var is None:
            return
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        weight = self.momentum
        if weight is None:
            weight = 1 / float(self.num_batches_tracked)
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), weight)
        self.running_var.lerp_(variance.to(self.running_var.dtype), weight)


class _OverRanks1d(_OverRanks, nn.BatchNorm1d):
    pass


class _OverRanks2d(_OverRanks, nn.BatchNorm2d):
    pass


_COUNTERPARTS: dict[type[nn.Module], type[nn.Module]] = {
    nn.BatchNorm1d: _OverRanks1d,
    nn.BatchNorm2d: _OverRanks2d,
}


@contextmanager
def batch_norm_over_ranks(module: nn.Module) -> Iterator[None]:
    """Within, all BatchNorm1d and 2d inside `module` take their statistics over all ranks.

    The layers keep their parameters and names; only their class changes until the end.

    >>> norm = nn.BatchNorm1d(3)
    >>> with batch_norm_over_ranks(norm):
    ...     norm(torch.randn(5, 3)).shape
    torch.Size([5, 3])
    """
    several = distributed.world_size() > 1
    changed = [m for m in module.modules() if several and type(m) in _COUNTERPARTS]
    original = [type(m) for m in changed]
    for layer in changed:
        layer.__class__ = _COUNTERPARTS[type(layer)]
    try:
        yield
    finally:
        for layer, kind in zip(changed, original, strict=True):
            layer.__class__ = kind


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
    layers = [
        (layer, layer.momentum)
        for layer in module.modules()
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) and layer.momentum is not None
    ]

    def hook(weight: float) -> Any:
        def set_momentum(layer: nn.Module, _: Any) -> None:
            seen = layer.num_batches_tracked
            if layer.training and seen is not None:
                layer.momentum = max(weight, 1 / (int(seen) + 1))  # type: ignore[arg-type, assignment]

        return set_momentum

    handles = [layer.register_forward_pre_hook(hook(weight)) for layer, weight in layers]
    try:
        yield
    finally:
        for (layer, weight), handle in zip(layers, handles, strict=True):
            handle.remove()
            layer.momentum = weight
