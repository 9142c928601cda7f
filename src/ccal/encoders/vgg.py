"""VGG towers for pictures and spectrograms: the paper's networks of its Table 7."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from ccal.bounds import Whole
from ccal.encoders.dense import initialised
from ccal.encoders.registry import Tower, register_tower
from ccal.errors import InputError

_AT_ONCE = 256  # pictures in evaluation mode


@register_tower("vgg")
class VGG(Tower):
    """Blocks of two 3 x 3 convolutions and max-pooling, a 1 x 1 convolution, and the mean of all.

    Batch normalisation follows every convolution, ELU all but the last (Table 7 and the released
    code). The defaults are the paper's; only `height` differs between sheet music (40) and
    spectrograms (136). Weights start uniform with variance 1 / inputs (He, gain 1). With
    `stride=2` the first convolution takes every second row and column, a quarter of the work.
    Pictures need not be scaled, since the first batch normalisation divides by their scale. In
    evaluation mode they go through some at a time, as their maps take much memory.

    Shapes: (n, height, width) or (n, 1, height, width) -> (n, out_features).

    >>> VGG(136)(torch.rand(2, 136, 100)).shape
    torch.Size([2, 32])
    >>> sum(p.numel() for p in VGG(40).parameters())
    148112
    """

    def __init__(
        self,
        height: int,
        width: int = 100,
        out_features: int = 32,
        *,
        maps: Sequence[int] = (16, 32, 64, 64),
        stride: int = 1,
    ) -> None:
        super().__init__()
        sizes = [height, width, out_features, stride, *maps]
        if not maps or not all(map(Whole(at_least=1).allows, sizes)):
            raise InputError(f"All sizes must be positive whole numbers, got {sizes}.")
        smallest = stride * (2 ** len(maps) - 1) + 1
        if min(height, width) < smallest:
            raise InputError(
                f"stride {stride} and {len(maps)} times max-pooling need at least {smallest} x "
                f"{smallest} pixels, got {height} x {width}."
            )
        self.height, self.width, self.out_features = height, width, out_features
        self.maps, self.stride = list(maps), stride
        layers: list[nn.Module] = []
        for before, after in pairwise((1, *maps)):
            step = 1 if layers else stride
            layers += [*_normalised(before, after, 3, step), nn.ELU(inplace=True)]
            layers += [*_normalised(after, after, 3), nn.ELU(inplace=True), nn.MaxPool2d(2)]
        layers += _normalised(self.maps[-1], out_features, 1)
        self.layers = _channels_last(layers)

    def forward(self, pictures: Tensor) -> Tensor:
        """(n, height, width) or (n, 1, height, width) -> (n, out_features)."""
        if pictures.ndim == 3:
            pictures = pictures.unsqueeze(1)
        if pictures.ndim != 4 or pictures.shape[1:] != (1, self.height, self.width):
            raise InputError(
                f"This tower takes pictures (n, {self.height}, {self.width}) or "
                f"(n, 1, {self.height}, {self.width}), got {tuple(pictures.shape)}."
            )
        parts = pictures.split(len(pictures) if self.training else _AT_ONCE)
        means = [self.layers(p.to(memory_format=torch.channels_last)).mean((2, 3)) for p in parts]
        return torch.cat(means)

    def fused(self) -> VGG:
        """A copy for inference, with batch normalisation folded into the convolutions."""
        copy = deepcopy(self).eval()
        layers: list[nn.Module] = []
        for layer in copy.layers:
            if isinstance(layer, nn.BatchNorm2d) and isinstance(layers[-1], nn.Conv2d):
                layers[-1] = fuse_conv_bn_eval(layers[-1], layer)
            else:
                layers.append(layer)
        copy.layers = _channels_last(layers)
        return copy


def _channels_last(layers: list[nn.Module]) -> nn.Sequential:
    """One network; with the channels last, convolutions on the CPU are nearly twice as fast."""
    network = nn.Sequential(*layers)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network


def _normalised(inputs: int, outputs: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    # Batch normalisation subtracts a bias again.
    conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    return [initialised(conv), nn.BatchNorm2d(outputs)]
