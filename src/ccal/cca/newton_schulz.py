"""Polar factor and its derivative by matrix products alone, for devices where eigh is slow.

Each step maps the singular values s of X to 1.5 (a s) - 0.5 (a s)^3. The scale a that is best for
s in [l, 1] is a^2 = 3 / (1 + l + l^2): it sends the interval to [l', 1] with l' the value at either
end (Chen and Chow, A stable scaling of Newton-Schulz for improving the sign function computation
of a Hermitian matrix, 2014). Small singular values grow by 2.6 a step at first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from time import perf_counter
from typing import Literal

import torch
from torch import Tensor

__all__ = [
    "Solver",
    "fastest_solver",
    "polar_factor_newton_schulz",
    "polar_tangent_newton_schulz",
]

Solver = Literal["eigh", "newton-schulz"]

# Singular values below this share of the largest are left unconverged: they carry no correlation.
_SMALLEST = 1e-7


def _scales() -> Iterator[float]:
    low = _SMALLEST
    while low < 1 - 1e-15:
        scale = (3 / (1 + low + low * low)) ** 0.5
        yield scale
        low = 1.5 * scale * low - 0.5 * (scale * low) ** 3


def _normalised(T: Tensor) -> tuple[Tensor, Tensor]:
    """T over an upper bound of its spectral norm, and that bound."""
    bound = (torch.linalg.matrix_norm(T, 1) * torch.linalg.matrix_norm(T, torch.inf)).sqrt()
    bound = torch.where(bound > 0, bound, 1.0)
    # A few squarings bring the bound close: the iteration wants singular values near 1.
    G = T.mT @ T / bound.square()
    squared = torch.linalg.matrix_norm(G @ G).sqrt()
    bound = bound * torch.where(squared > 0, squared, 1.0).sqrt()
    return T / bound, bound


def polar_factor_newton_schulz(T: Tensor) -> Tensor:
    """Orthogonal polar factor of a square T (d, d), by about 44 matrix products.

    Directions in which T is zero stay zero.

    >>> T = torch.tensor([[2.0, 1.0], [0.0, 0.5]]).double()
    >>> Q = polar_factor_newton_schulz(T)
    >>> bool(torch.allclose(Q.mT @ T, (Q.mT @ T).mT))
    True
    """
    X, _ = _normalised(T)
    for scale in _scales():
        X = 1.5 * scale * X - 0.5 * scale**3 * (X @ (X.mT @ X))
    return X


def polar_tangent_newton_schulz(T: Tensor, direction: Tensor) -> Tensor:
    """Derivative of the polar factor of T in a direction; the map is its own adjoint."""
    X, bound = _normalised(T)
    D = direction / bound
    for scale in _scales():
        linear, cubic = 1.5 * scale, 0.5 * scale**3
        G, cross = X.mT @ X, D.mT @ X
        D = linear * D - cubic * (D @ G + X @ (cross + cross.mT))
        X = linear * X - cubic * (X @ G)
    return D


@cache
def fastest_solver(size: int, device: str) -> Solver:
    """The faster way to a polar factor and its derivative on a device, timed here and now.

    The two agree to 1e-5 or better, but not to the last bit: name the solver where runs must repeat
    exactly.
    """
    generator = torch.Generator().manual_seed(0)
    T = torch.randn(size, size, generator=generator, dtype=torch.float64).to(device) / size

    def eigh() -> Tensor:
        _, V = torch.linalg.eigh(T.mT @ T)
        result: Tensor = V @ (V.mT @ T @ V) @ V.mT
        return result

    def newton_schulz() -> Tensor:
        return polar_tangent_newton_schulz(T, polar_factor_newton_schulz(T))

    def seconds(run: Callable[[], Tensor]) -> float:
        run().sum().item()
        start = perf_counter()
        for _ in range(3):
            run().sum().item()
        return perf_counter() - start

    return "newton-schulz" if seconds(newton_schulz) < seconds(eigh) else "eigh"
