"""Heads, from embeddings to bits: signs, signs after a rotation, and trained ones.

Iterative quantisation finds the rotation after which signs lose least: Gong and Lazebnik,
Iterative Quantization: A Procrustean Approach to Learning Binary Codes, 2011. Heads are trained by
the pairwise ranking loss, on embeddings or through the towers below them.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ccal.bounds import Number, Whole, check_all
from ccal.cca.checks import check_pair
from ccal.errors import CcalError, InputError
from ccal.losses import PairwiseRankingLoss
from ccal.model import DualEncoder
from ccal.ranks import unit_rows

_BOUNDS = {
    "epochs": Whole(at_least=1),
    "batch_size": Whole(at_least=2),
    "slope": Number(at_least=1),
    "dropout": Number(at_least=0, below=1),
}


def shared_axes(x: Tensor, y: Tensor) -> Tensor:
    """Orthonormal axes (k, k), as columns, those along which pairs (n, k) agree most first.

    They are the eigenvectors of the symmetric half of the cross-covariance of the centred views.
    In a canonical space these are the coordinates themselves, up to their signs.
    """
    covariance = x.mT @ y / len(x)
    axes: Tensor = torch.linalg.eigh((covariance + covariance.mT) / 2).eigenvectors.flip(1)
    return axes


def itq_rotation(
    values: Tensor, bits: int, *, iterations: int = 50, seed: int = 0
) -> tuple[Tensor, list[float]]:
    """A map R (d, bits) of orthonormal rows that makes `values @ R` close to its own signs.

    `values` (n, d) are centred, with d at most `bits`; with d = bits, R is a rotation, with fewer
    dimensions one of their space within a larger one. In turn, the signs of the rotated values are
    taken, and the rotation that comes closest to them (orthogonal Procrustes). Neither step can
    raise |sign(values R) - values R|^2, whose mean over all entries is returned with R: one number
    an iteration, from before its Procrustes step.

    >>> values = torch.tensor([[1.0, 1.0], [-1.0, -1.0], [0.2, -0.2], [-0.2, 0.2]])
    >>> rotation, losses = itq_rotation(values, 2, iterations=5)
    >>> losses[-1] <= losses[0], (rotation @ rotation.mT).round(decimals=6).tolist()
    (True, [[1.0, 0.0], [0.0, 1.0]])
    """
    generator = torch.Generator().manual_seed(seed)
    values = values.detach().cpu().double()
    # Entries are scaled to about the size of signs, 1, so that the loss is a share.
    values = values / values.square().mean().sqrt().clamp_min(1e-30)
    values *= (values.shape[1] / bits) ** -0.5
    draw = torch.randn(bits, bits, generator=generator, dtype=torch.float64)
    rotation: Tensor = torch.linalg.qr(draw).Q[: values.shape[1]]
    losses = []
    for _ in range(iterations):
        rotated = values @ rotation
        signs = torch.where(rotated > 0, 1.0, -1.0).to(rotated)
        losses.append((signs - rotated).square().mean().item())
        left, _, right = torch.linalg.svd(values.mT @ signs, full_matrices=False)
        rotation = left @ right
    return rotation, losses


@dataclass(frozen=True)
class Head:
    """Bits of one modality: bit j of an embedding u of length 1 is set if (u W)_j + b_j > 0.

    W is `weight` (k, bits), b is `bias` (bits,).
    """

    weight: Tensor
    bias: Tensor

    def __call__(self, embeddings: Tensor) -> Tensor:
        """Values (n, bits), whose signs are the bits, of embeddings (n, k) of any length."""
        rows = unit_rows(embeddings, "embeddings").to(self.weight.dtype)
        return rows @ self.weight + self.bias


def unit_views(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Embeddings (n, k) of pairs as float32 rows of length 1; other shapes are refused."""
    check_pair(x, y)
    if x.shape != y.shape or len(x) < 2 or not x.shape[1]:
        raise InputError(
            "x and y must be embeddings (n, k) of at least 2 pairs in one space, got shapes "
            f"{tuple(x.shape)} and {tuple(y.shape)}."
        )
    return unit_rows(x.detach().cpu(), "x").float(), unit_rows(y.detach().cpu(), "y").float()


def sign_heads(x: Tensor, y: Tensor, bits: int) -> tuple[Head, Head]:
    """The signs of the leading coordinates of unit embeddings (n, k), centred by view."""
    k = x.shape[1]
    if bits > k:
        raise InputError(
            f'kind="sign" has one bit for each of the {k} dimensions, got bits={bits}; '
            'kind="itq" makes more bits than dimensions.'
        )
    weight = torch.eye(k, bits)
    return _centred(weight, x), _centred(weight, y)


def itq_heads(
    x: Tensor, y: Tensor, bits: int, *, dims: int | None = None, seed: int = 0
) -> tuple[Head, Head]:
    """One rotation for both views, learnt from unit embeddings (n, k) of both.

    It turns the `dims` axes along which pairs agree most; by default there are half as many as
    bits. See `itq_rotation`.
    """
    most = min(x.shape[1], bits)
    dims = min(most, bits // 2) if dims is None else dims
    if not 1 <= dims <= most:
        raise InputError(
            f"dims must lie between 1 and {most}, the smaller of the embeddings' {x.shape[1]} "
            f"dimensions and the {bits} bits, got {dims}."
        )
    centred = [(view - view.mean(0)).double() for view in (x, y)]
    axes = shared_axes(*centred)[:, :dims]
    values = torch.cat([view @ axes for view in centred])
    rotation, _ = itq_rotation(values, bits, seed=seed)
    weight = (axes @ rotation).float()
    return _centred(weight, x), _centred(weight, y)


def _centred(weight: Tensor, view: Tensor) -> Head:
    """A head whose values have mean 0 over the rows of `view`."""
    return Head(weight, -(view.mean(0) @ weight))


@dataclass(frozen=True, kw_only=True)
class HeadTraining:
    """How heads are trained.

    Bits have no gradient, so tanh(slope * value) stands for them, with a slope that grows by the
    same factor each step, from 1, where tanh is soft, to `slope`, where it is nearly a sign.

    Args:
        epochs: passes over all pairs.
        batch_size: pairs a step, each of which is ranked against the others of its batch.
        learning_rate: of Adam for the heads.
        tower_learning_rate: of Adam for the towers, in `train_through`.
        margin: of the ranking loss.
        slope: of tanh at the end.
        dropout: share of the embeddings' entries that is set to zero, drawn anew each step. Pairs
            that the model was trained on agree more than others do; this keeps heads from
            relying on it.
        seed: of shuffling and dropout.
    """

    epochs: int = 15
    batch_size: int = 1000
    learning_rate: float = 1e-2
    tower_learning_rate: float = 1e-4
    margin: float = 0.5
    slope: float = 8.0
    dropout: float = 0.3
    seed: int = 0

    def __post_init__(self) -> None:
        check_all(_BOUNDS, self.__dict__)


def train_heads(
    x: Tensor, y: Tensor, start: Sequence[Head], settings: HeadTraining
) -> tuple[Head, Head]:
    """Heads trained on unit embeddings (n, k) of pairs, one matrix a view, starting from `start`.

    >>> x = torch.randn(200, 8)
    >>> x, y = unit_views(x, x + torch.randn(200, 8))
    >>> heads = train_heads(x, y, itq_heads(x, y, 16), HeadTraining(epochs=2, batch_size=100))
    >>> [tuple(head.weight.shape) for head in heads]
    [(8, 16), (8, 16)]
    """
    layers = [_SoftHead(head, view) for head, view in zip(start, (x, y), strict=True)]
    return _train(lambda rows: (x[rows], y[rows]), len(x), layers, [], settings)


def train_through(
    model: DualEncoder, x: Tensor, y: Tensor, start: Sequence[Head], settings: HeadTraining
) -> tuple[DualEncoder, tuple[Head, Head]]:
    """A copy of the model and its heads, trained end to end on features (n, ...) of pairs.

    The towers learn, with their own dropout and batch statistics; the projection between them and
    the heads stays as it is. A hub correction would no longer fit and is left out of the copy.
    """
    if len(x) != len(y):
        raise InputError(f"x and y must be pairs, got {len(x)} and {len(y)} rows.")
    model = deepcopy(model)
    model.hubs = None
    device = next(model.parameters()).device
    layers = [
        _SoftHead(head, model.encode(name, view).cpu()).to(device)
        for head, name, view in zip(start, model.modalities, (x, y), strict=True)
    ]
    model.train()
    projection = model.projection
    if projection is not None:
        # In evaluation mode a CCA layer keeps the projections it has.
        projection.eval().requires_grad_(False)

    def embedded(rows: Tensor) -> tuple[Tensor, Tensor]:
        both = model.tower_outputs(x[rows].to(device), y[rows].to(device))
        if projection is None:
            return both
        projected: tuple[Tensor, Tensor] = projection(*both)
        return projected

    # The towers' own dropout draws from the global generator, whose state is restored afterwards.
    with torch.random.fork_rng():
        torch.manual_seed(settings.seed)
        heads = _train(embedded, len(x), layers, list(model.towers.parameters()), settings)
    return model.eval().requires_grad_(True), heads


class _SoftHead(nn.Module):
    """A head whose bits are tanh of its values, which start with a mean square of 1 over `view`."""

    centre: Tensor

    def __init__(self, head: Head, view: Tensor) -> None:
        super().__init__()
        size = head(view).square().mean().sqrt().clamp_min(1e-30)
        self.register_buffer("centre", functional.normalize(view).mean(0))
        self.weight = nn.Parameter(head.weight / size)
        self.bias = nn.Parameter((head.bias + self.centre @ head.weight) / size)

    def forward(self, embeddings: Tensor, slope: float, kept: Tensor) -> Tensor:
        """Soft bits (m, bits) of embeddings (m, k), multiplied by the factors `kept` (m, k)."""
        rows = (functional.normalize(embeddings) - self.centre) * kept
        return torch.tanh(slope * (rows @ self.weight + self.bias))

    def head(self) -> Head:
        """The trained head."""
        weight, bias = self.weight.detach(), self.bias.detach()
        if not (weight.isfinite().all() and bias.isfinite().all()):
            raise CcalError("The training of codes diverged; lower the learning rates.")
        return Head(weight.cpu(), (bias - self.centre @ weight).cpu())


def _train(
    embedded: Callable[[Tensor], tuple[Tensor, Tensor]],
    count: int,
    layers: Sequence[_SoftHead],
    tower_parameters: list[nn.Parameter],
    settings: HeadTraining,
) -> tuple[Head, Head]:
    """Heads, and towers if any in place; `embedded` maps rows (m,) to their embeddings."""
    generator = torch.Generator().manual_seed(settings.seed)
    groups: list[dict[str, Any]] = [{"params": [p for layer in layers for p in layer.parameters()]}]
    if tower_parameters:
        groups.append({"params": tower_parameters, "lr": settings.tower_learning_rate})
    optimiser = torch.optim.Adam(groups, lr=settings.learning_rate)
    loss = PairwiseRankingLoss(margin=settings.margin, direction="both")
    # Pairs beyond the last full batch wait for another epoch: a small batch ranks little.
    batches = max(1, count // settings.batch_size)
    steps, step = settings.epochs * batches, 0
    for _ in range(settings.epochs):
        order = torch.randperm(count, generator=generator)
        for rows in order.split(settings.batch_size)[:batches]:
            slope = settings.slope ** (step / max(1, steps - 1))
            bits = [
                layer(view, slope, _kept(view, settings.dropout, generator))
                for layer, view in zip(layers, embedded(rows), strict=True)
            ]
            optimiser.zero_grad()
            loss(*bits).backward()
            optimiser.step()
            step += 1
    head_x, head_y = (layer.head() for layer in layers)
    return head_x, head_y


def _kept(view: Tensor, dropout: float, generator: torch.Generator) -> Tensor:
    """Factors of dropout (m, k): 0, or 1 / (1 - dropout)."""
    kept = torch.rand(view.shape, generator=generator) >= dropout
    return kept.to(view) / (1 - dropout)
