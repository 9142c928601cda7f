"""Iterative quantisation: the rotation of a space that its signs lose least by.

Gong and Lazebnik, Iterative Quantization: A Procrustean Approach to Learning Binary Codes, 2011.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["itq_rotation", "shared_axes"]


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
    # Signs have size 1; entries of about that size make the loss a share.
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
