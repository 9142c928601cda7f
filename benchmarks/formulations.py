"""Other formulations of the layer, as one would write them down for autograd."""

from __future__ import annotations

import torch
from torch import Tensor


def _covariances(x: Tensor, y: Tensor, ridge: float) -> tuple[Tensor, ...]:
    xc, yc = x - x.mean(0), y - y.mean(0)
    scale = 1 / (len(x) - 1)
    xx = xc.mT @ xc * scale + ridge * torch.eye(x.shape[1], dtype=x.dtype)
    yy = yc.mT @ yc * scale + ridge * torch.eye(y.shape[1], dtype=y.dtype)
    return xc, yc, xx, yy, xc.mT @ yc * scale


def _inverse_root(cov: Tensor) -> Tensor:
    e, V = torch.linalg.eigh(cov)
    root: Tensor = V @ torch.diag(e**-0.5) @ V.mT
    return root


def released(x: Tensor, y: Tensor, ridge: float = 1e-3) -> tuple[Tensor, Tensor]:
    """The authors' released formulation: inverse roots by eigh, then two more eigh."""
    xc, yc, xx, yy, xy = _covariances(x, y, ridge)
    root_x, root_y = _inverse_root(xx), _inverse_root(yy)
    T = root_x @ xy @ root_y
    identity = torch.eye(len(T), dtype=T.dtype)
    _, U = torch.linalg.eigh(T @ T.mT + ridge * identity)
    _, V = torch.linalg.eigh(T.mT @ T + ridge * identity)
    A, B = root_x @ U, root_y @ V
    A = A * torch.sign(torch.diagonal(A.mT @ xy @ B))
    return xc @ A, yc @ B


def by_svd(x: Tensor, y: Tensor, ridge: float = 1e-3) -> tuple[Tensor, Tensor]:
    """Cholesky whitening and one SVD, left to autograd."""
    xc, yc, xx, yy, xy = _covariances(x, y, ridge)
    Lx, Ly = torch.linalg.cholesky(xx), torch.linalg.cholesky(yy)
    half = torch.linalg.solve_triangular(Lx, xy, upper=False)
    T = torch.linalg.solve_triangular(Ly, half.mT, upper=False).mT
    U, _, Vh = torch.linalg.svd(T)
    A = torch.linalg.solve_triangular(Lx.mT, U, upper=True)
    B = torch.linalg.solve_triangular(Ly.mT, Vh.mT, upper=True)
    return xc @ A, yc @ B
