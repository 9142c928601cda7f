"""Dense towers for ready-made features: the paper's image and text networks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

from torch import Tensor, nn

from ccal.bounds import Number, Whole, check
from ccal.encoders.registry import Tower, register_tower
from ccal.errors import InputError

Layer = TypeVar("Layer", nn.Linear, nn.Conv1d, nn.Conv2d)


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
