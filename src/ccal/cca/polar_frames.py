"""Frames of the polar factor of a float32 matrix, all in float32.

Singular vectors by the eigenvectors V of T'T suffer from squaring: rounding turns directions of
small singular values d into each other. In float64 that does no harm, but takes twice the time. So
directions of small d are told apart a second time, in the space that they span, where they are not
small any more. What is still wrong shows in U = T V / d, whose columns should be orthonormal: with
U'U = I + F, the polar factor is U D (D (I + F) D)^(-1/2) V', which to first order in F is

    (U - U Z) V'        Z_ij = F_ij d_i / (d_i + d_j)
"""

from __future__ import annotations

from bisect import bisect_right

import torch
from torch import Tensor

from ccal.cca.spectral import SingularFrames

__all__ = ["polar_frames"]

# Smaller matrices have their eigenvectors sooner in float64 than all this takes.
_WORTH_IT = 100

# Singular values below this share of the largest count as small.
_SMALL = 0.1

# Largest norm of F, whose square is what remains. One random matrix in a hundred exceeds it at
# d = 128, one in ten at 256 and 512.
_DEFECT = 1e-2


def polar_frames(T: Tensor) -> SingularFrames | None:
    """Frames of a square float32 T (d, d) with U V' its polar factor, exact to float32.

    d is in float64. None where nothing is saved, because T is small or many of its singular values
    are; and where T is too close to a singular matrix.

    >>> T = torch.randn(128, 128, generator=torch.Generator().manual_seed(0))
    >>> U, d, V = polar_frames(T)
    >>> bool(torch.allclose((U * d.float()) @ V.mT, T, atol=1e-4))
    True
    """
    size = len(T)
    if size < _WORTH_IT:
        return None
    # Of -T'T the eigenvalues come in descending order of d.
    e, V = torch.linalg.eigh(torch.addmm(T, T.mT, T, beta=0, alpha=-1), UPLO="U")
    squares = e.tolist()
    large = bisect_right(squares, _SMALL**2 * squares[0])
    if large < size // 2:
        return None
    U = T @ V
    if large < size:
        _tell_apart(U[:, large:], V[:, large:])
    d = U.square().sum(0).sqrt_()
    U /= d
    F = (U.mT @ U).fill_diagonal_(0)
    # Not a number where T is singular.
    if not torch.linalg.vector_norm(F).item() < _DEFECT:
        return None
    column = d[:, None]
    Z = F.mul_(column).div_(column + d)
    return SingularFrames(torch.addmm(U, U, Z, alpha=-1), d.double(), V)


def _tell_apart(images: Tensor, directions: Tensor) -> None:
    """Turn directions (d, r) and their images under T, in place, to make those orthogonal."""
    _, turn = torch.linalg.eigh((images.mT @ images).neg_())
    images.copy_(images @ turn)
    directions.copy_(directions @ turn)
