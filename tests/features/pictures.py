"""Pictures and a small network for the tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from ccal.features import Backbone


def gradient(width: int = 48, height: int = 32, blue: int = 90) -> NDArray[np.uint8]:
    """Red grows to the right and green downwards, so that no turn of it looks the same."""
    pixels = np.full((height, width, 3), blue, dtype=np.uint8)
    pixels[..., 0] = np.linspace(0, 255, width).round()
    pixels[..., 1] = np.linspace(0, 255, height).round()[:, None]
    return pixels


def picture(width: int = 48, height: int = 32, blue: int = 90) -> Image.Image:
    return Image.fromarray(gradient(width, height, blue))


def write_pictures(folder: Path, count: int) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{number:03}.png" for number in range(count)]
    for number, path in enumerate(paths):
        picture(blue=number).save(path)
    return [str(path) for path in paths]


class Counting(nn.Module):
    """A network (n, 3, s, s) -> (n, 5, s / 4, s / 4) that counts the images it sees."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 5, 4, stride=4)
        generator = torch.Generator().manual_seed(seed)
        for parameter in self.conv.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator)
        self.seen = 0

    def forward(self, images: Tensor) -> Tensor:
        self.seen += len(images)
        maps: Tensor = self.conv(images)
        return maps


def counting(seed: int = 0, size: int = 16) -> tuple[Counting, Backbone]:
    module = Counting(seed).eval()
    return module, Backbone(module, size=size)
