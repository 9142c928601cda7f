"""Slow, independent float64 references that the tests compare with."""

from __future__ import annotations

import torch
from torch import Tensor


def algorithm_1(x: Tensor, y: Tensor, ridge: float = 1e-3) -> tuple[Tensor, Tensor, Tensor]:
    """Algorithm 1 of the paper, line by line, with its erratum (C^-T in place of C^-1).

    Rows are samples. Returns the projected views and the canonical correlations, all by autograd.
    """
    m = len(x)
    x_bar, y_bar = x - x.mean(0), y - y.mean(0)
    xx = x_bar.T @ x_bar / (m - 1) + ridge * torch.eye(x.shape[1], dtype=x.dtype)
    yy = y_bar.T @ y_bar / (m - 1) + ridge * torch.eye(y.shape[1], dtype=y.dtype)
    xy = x_bar.T @ y_bar / (m - 1)
    cx, cy = (
        torch.linalg.inv(torch.linalg.cholesky(xx)),
        torch.linalg.inv(torch.linalg.cholesky(yy)),
    )
    T = cx @ xy @ cy.T
    e, U = torch.linalg.eigh(T @ T.T)
    _, V = torch.linalg.eigh(T.T @ T)
    A, B = cx.T @ U.flip(1), cy.T @ V.flip(1)
    A = A * torch.sign(torch.diagonal(A.T @ xy @ B))
    return x_bar @ A, y_bar @ B, e.flip(0).clamp_min(0).sqrt()


def ranking_loss(x: Tensor, y: Tensor, margin: float = 0.5) -> Tensor:
    """The paper's pairwise ranking loss, averaged over the off-diagonal hinges."""
    scores = cosines(x, y)
    hinges = (margin - scores.diagonal()[:, None] + scores).clamp_min(0)
    n = len(scores)
    return (hinges.sum() - hinges.diagonal().sum()) / (n * (n - 1))


def cosines(x: Tensor, y: Tensor) -> Tensor:
    """All cosines between rows of x and rows of y."""
    scores: Tensor = (x / x.norm(dim=1, keepdim=True)) @ (y / y.norm(dim=1, keepdim=True)).T
    return scores


def correlated_views(
    m: int, d_x: int, d_y: int, *, seed: int = 0, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    """Two noisy linear mixtures of shared sources."""
    generator = torch.Generator().manual_seed(seed)

    def noise(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    sources = noise(m, min(d_x, d_y))
    x = sources @ noise(min(d_x, d_y), d_x) + noise(m, d_x)
    y = sources @ noise(min(d_x, d_y), d_y) + noise(m, d_y)
    return x.to(dtype), y.to(dtype)


def relative_error(value: Tensor, reference: Tensor) -> float:
    """Norm of the difference over the norm of the reference."""
    value, reference = value.double(), reference.double()
    return float((value - reference).norm() / reference.norm())
