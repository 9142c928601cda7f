"""A small model and pairs of embeddings, as all tests of codes need them."""

from __future__ import annotations

import torch
from torch import Tensor

from ccal.encoders import DenseTower
from ccal.model import DualEncoder


def small_model(dim: int = 12, seed: int = 0) -> DualEncoder:
    torch.manual_seed(seed)
    image, text = DenseTower(20, dim), DenseTower(16, dim)
    return DualEncoder(dim=dim, projection="none", image=image, text=text).eval()


def embedded_pairs(count: int, dim: int = 12, noise: float = 0.4, seed: int = 0) -> list[Tensor]:
    """Views of one meaning, with leading dimensions that count more, and a mean that is not 0."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.linspace(1, 0.3, dim)
    meaning = torch.randn(count, dim, generator=generator)
    return [
        (meaning + noise * torch.randn(count, dim, generator=generator)) * weights + 0.1
        for _ in range(2)
    ]
