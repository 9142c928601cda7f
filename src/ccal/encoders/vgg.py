"""VGG towers for pictures and spectrograms: the paper's networks of its Table 7.

`ResidualVGG` adds such a network, which starts at zero, to a linear map of the pooled pixels.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_eval

from ccal.bounds import Whole
from ccal.encoders.dense import LinearTower, initialised
from ccal.encoders.registry import Tower, register_tower
from ccal.errors import InputError

_AT_ONCE = 256  # pictures in evaluation mode
_POOLED = 1000  # numbers that are left of a picture


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
        copy.layers = _channels_last(fused_layers(copy.layers))
        return copy


@register_tower("vgg-residual")
class ResidualVGG(Tower):
    """A linear map of the pooled pixels plus a `VGG` network whose output starts at zero.

    With `linear.initialise` it starts as linear CCA and learns what linear CCA lacks. The last
    batch normalisation of the network starts with a factor of zero.

    Shapes: (n, height, width) or (n, 1, height, width) -> (n, out_features).

    >>> tower = ResidualVGG(40)
    >>> tower.linear.in_features, tower(torch.rand(2, 40, 100)).shape
    (1000, torch.Size([2, 32]))
    """

    def __init__(
        self, height: int, width: int = 100, out_features: int = 32, *, stride: int = 1
    ) -> None:
        super().__init__()
        self.height, self.width, self.out_features = height, width, out_features
        self.stride = stride
        self.network = VGG(height, width, out_features, stride=stride)
        last = self.network.layers[-1]
        assert isinstance(last, nn.BatchNorm2d)
        nn.init.zeros_(last.weight)
        pixels = pooled_pixels(torch.zeros(1, height, width)).shape[1]
        self.linear = LinearTower(pixels, out_features)

    def forward(self, pictures: Tensor) -> Tensor:
        """(n, height, width) or (n, 1, height, width) -> (n, out_features)."""
        nonlinear: Tensor = self.network(pictures)
        output: Tensor = self.linear(pooled_pixels(pictures)) + nonlinear
        return output


def pooled_pixels(pictures: Tensor) -> Tensor:
    """Pictures (n, height, width) or (n, 1, height, width), averaged over squares: (n, pixels).

    The squares are the smallest that leave at most 1,000 pixels; what is left of a square at the
    right and the lower edge is cut off.

    >>> pooled_pixels(torch.zeros(2, 136, 100)).shape
    torch.Size([2, 850])
    """
    height, width = pictures.shape[-2:]
    size = 1
    while (height // size) * (width // size) > _POOLED:
        size += 1
    return functional.avg_pool2d(pictures.reshape(-1, 1, height, width), size).flatten(1)


def fused_layers(layers: Iterable[nn.Module]) -> list[nn.Module]:
    """The same layers in evaluation mode, with batch normalisation folded into convolutions."""
    fused: list[nn.Module] = []
    for layer in layers:
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            fused[-1] = fuse_conv_bn_eval(fused[-1], layer)  # type: ignore[type-var]
        else:
            fused.append(layer)
    return fused


def _channels_last(layers: list[nn.Module]) -> nn.Sequential:
    """One network; with the channels last, convolutions on the CPU are nearly twice as fast."""
    network = nn.Sequential(*layers)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network


def _normalised(inputs: int, outputs: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    # Batch normalisation subtracts a bias again.
    conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    return [initialised(conv), nn.BatchNorm2d(outputs)]
