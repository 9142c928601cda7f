"""Heads that need no training: signs, and signs after a rotation of the space.

Iterative quantisation finds the rotation after which signs lose least: Gong and Lazebnik,
Iterative Quantization: A Procrustean Approach to Learning Binary Codes, 2011.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ccal.cca.checks import check_pair
from ccal.errors import InputError
from ccal.ranks import unit_rows


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
    unit_x, unit_y = (
        unit_rows(view.detach().cpu(), name).float() for view, name in ((x, "x"), (y, "y"))
    )
    return unit_x, unit_y


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
    x: Tensor, y: Tensor, bits: int, *, dims: int | None = None, iterations: int = 50, seed: int = 0
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
    rotation, _ = itq_rotation(values, bits, iterations=iterations, seed=seed)
    weight = (axes @ rotation).float()
    return _centred(weight, x), _centred(weight, y)


def _centred(weight: Tensor, view: Tensor) -> Head:
    """A head whose values have mean 0 over the rows of `view`."""
    return Head(weight, -(view.mean(0) @ weight))
