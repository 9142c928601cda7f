"""A tower that can be initialised with one projection of linear CCA."""

from __future__ import annotations

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from ccal.encoders.dense import check_features
from ccal.encoders.registry import Tower, register_tower
from ccal.errors import InputError

_HIDDEN_DROPOUT = 0.3


@register_tower("linear")
class LinearTower(Tower):
    """Centre the features, drop some of them in training, multiply by a matrix.

    With `root`, features become `signed_root(features)` first: that tames features with long tails,
    such as the activations of a network or counts. With `hidden` units, a small network is added to
    the linear map; its output starts at zero.

    Shapes: (n, in_features) -> (n, out_features).

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
        self.drop = nn.Dropout(dropout)
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
        check_features(features, self.in_features)
        features = signed_root(features) if self.root else features
        centred = self.drop((features - self.mean) / self.unit)
        output: Tensor = self.matrix(centred)
        return output if self.network is None else output + self.network(centred / self.scale)


def signed_root(features: Tensor) -> Tensor:
    """Square roots of the absolute values, with the signs of the values.

    >>> signed_root(torch.tensor([4.0, -9.0]))
    tensor([ 2., -3.])
    """
    return features.abs().sqrt().copysign(features)
