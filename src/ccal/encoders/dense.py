"""Towers for ready-made features: the paper's dense networks, and one that starts as linear CCA."""

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from ccal.bounds import Number, Whole, check
from ccal.encoders.registry import Tower, register_tower
from ccal.errors import InputError

Layer = TypeVar("Layer", nn.Linear, nn.Conv1d, nn.Conv2d)

_HIDDEN_DROPOUT = 0.3


@register_tower("dense")
class DenseTower(Tower):
    """Dense layers with batch normalisation and ELU, then a linear layer.

    Without `hidden` it is one linear layer, the paper's image tower (4096 -> 128). With
    `hidden=(1024, 1024)` it is its text tower (5793 -> 1024 -> 1024 -> 128). Weights start uniform
    with variance 1 / inputs (He, gain 1), biases at zero. Features are divided by `scale` first
    (the paper: by the largest value of the training data). A share `dropout` of them is set to zero
    in training.

    Shapes: (n, in_features) -> (n, out_features).

    >>> DenseTower(5793, 128, hidden=(1024, 1024))(torch.rand(2, 5793)).shape
    torch.Size([2, 128])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        hidden: Sequence[int] = (),
        scale: float = 1.0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        sizes = [in_features, *hidden, out_features]
        if not all(map(Whole(at_least=1).allows, sizes)):
            raise InputError(f"All layer sizes must be positive whole numbers, got {sizes}.")
        check("scale", scale, Number(above=0))
        check("dropout", dropout, Number(at_least=0, below=1))
        self.in_features, self.out_features = in_features, out_features
        self.hidden, self.scale, self.dropout = list(hidden), scale, dropout
        self.drop = nn.Dropout(dropout)
        layers: list[nn.Module] = []
        for size, following in pairwise(sizes[:-1]):
            # Batch normalisation subtracts a bias again.
            linear = initialised(nn.Linear(size, following, bias=False))
            layers += [linear, nn.BatchNorm1d(following), nn.ELU()]
        self.layers = nn.Sequential(*layers, initialised(nn.Linear(sizes[-2], out_features)))

    def forward(self, features: Tensor) -> Tensor:
        """(n, in_features) -> (n, out_features)."""
        check_features(features, self.in_features)
        output: Tensor = self.layers(self.drop(features / self.scale))
        return output


@register_tower("linear")
class LinearTower(Tower):
    """Centre the features, drop some of them in training, multiply by a matrix.

    With `root`, features become `signed_root(features)` first: that tames features with long tails,
    such as the activations of a network or counts. With `hidden` units, a small network is added to
    the linear map; its output starts at zero. Pictures are flattened.

    Shapes: (n, in_features), or (n, height, width) of as many numbers -> (n, out_features).

    >>> tower = LinearTower(3, 2)
    >>> tower.initialise([1.0, 0.0, 0.0], [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    >>> tower(torch.tensor([[2.0, 5.0, 7.0]])).tolist()
    [[1.0, 5.0]]
    """

    mean: Tensor
    unit: Tensor
    scale: Tensor

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        hidden: int = 0,
        root: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.hidden, self.root, self.dropout = hidden, root, dropout
        self.drop = _ByteDropout(dropout)
        self.matrix = nn.Linear(in_features, out_features)
        self.register_buffer("mean", torch.zeros(in_features))
        self.register_buffer("unit", torch.ones(()))
        self.register_buffer("scale", torch.ones(()))
        self.network: nn.Sequential | None = None
        if hidden:
            first, last = nn.Linear(in_features, hidden), nn.Linear(hidden, out_features)
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)
            self.network = nn.Sequential(first, nn.GELU(), nn.Dropout(_HIDDEN_DROPOUT), last)

    @torch.no_grad()
    def initialise(self, mean: ArrayLike, projection: ArrayLike, spread: float = 1.0) -> None:
        """Set the weights so that the tower computes (x - mean) @ projection.

        x are the features, or with `root` their square roots; mean is (in_features,) and projection
        (in_features, out_features). `spread` is about the standard deviation of x: the hidden layer
        sees (x - mean) / spread. If it is below 1e-4 or above 1e4, the linear map too counts x in
        units of it, so that weights and gradients stay within the range of float32.
        """
        unit = 1.0 if 1e-4 < spread < 1e4 else spread
        weight = torch.as_tensor(projection) * unit
        if weight.shape != (self.in_features, self.out_features):
            raise InputError(
                f"projection must be ({self.in_features}, {self.out_features}), "
                f"got {tuple(weight.shape)}."
            )
        self.mean.copy_(torch.as_tensor(mean))
        self.unit.fill_(unit)
        self.scale.fill_(spread / unit)
        self.matrix.weight.copy_(weight.mT)
        self.matrix.bias.zero_()

    def forward(self, features: Tensor) -> Tensor:
        """(n, in_features) -> (n, out_features)."""
        features = features.flatten(1) if features.ndim > 2 else features
        check_features(features, self.in_features)
        features = signed_root(features) if self.root else features
        centred = self.drop((features - self.mean) / self.unit)
        output: Tensor = self.matrix(centred)
        return output if self.network is None else output + self.network(centred / self.scale)


class _ByteDropout(nn.Module):
    """Dropout with one random byte a number, so that the share is a whole number of 256ths.

    `nn.Dropout` draws four bytes a number, one by one, and took a quarter of a training step.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self.kept = 256 if share == 0 else min(max(round(256 * (1 - share)), 1), 255)

    def forward(self, features: Tensor) -> Tensor:
        if not self.training or self.kept == 256:
            return features
        words = torch.empty(-(-features.numel() // 8), dtype=torch.int64, device=features.device)
        words.random_(torch.iinfo(torch.int64).min, None)
        drawn = words.view(torch.uint8)[: features.numel()].view(features.shape)
        return features * (drawn < self.kept) * (256 / self.kept)


def signed_root(features: Tensor) -> Tensor:
    """Square roots of the absolute values, with the signs of the values.

    >>> signed_root(torch.tensor([4.0, -9.0]))
    tensor([ 2., -3.])
    """
    return features.abs().sqrt().copysign(features)


def check_features(features: Tensor, in_features: int) -> None:
    """Refuse features of another shape than (n, in_features)."""
    if features.ndim != 2 or features.shape[1] != in_features:
        raise InputError(
            f"This tower takes features of shape (n, {in_features}), got {tuple(features.shape)}."
        )


def initialised(layer: Layer) -> Layer:
    """The layer, its weights uniform with variance 1 / inputs (He, gain 1) and its biases zero."""
    nn.init.kaiming_uniform_(layer.weight, nonlinearity="linear")
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer
