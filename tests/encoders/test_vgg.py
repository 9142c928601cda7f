from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import ccal
from ccal.encoders import VGG, ResidualVGG, build_tower, pooled_pixels, tower_config

# The paper's Table 7 with batch normalisation after every convolution: maps and kernel sizes.
_TABLE = [(16, 3), (16, 3), (32, 3), (32, 3), (64, 3), (64, 3), (64, 3), (64, 3), (32, 1)]


@pytest.mark.parametrize("height", [40, 136])
def test_the_layers_are_those_of_table_7(height: int) -> None:
    tower = VGG(height)
    convolutions = [layer for layer in tower.layers if isinstance(layer, nn.Conv2d)]
    assert [(c.out_channels, c.kernel_size[0]) for c in convolutions] == _TABLE
    kinds = [type(layer).__name__ for layer in tower.layers]
    block = 2 * ["Conv2d", "BatchNorm2d", "ELU"] + ["MaxPool2d"]
    assert kinds == 4 * block + ["Conv2d", "BatchNorm2d"]
    assert tower(torch.rand(3, height, 100)).shape == (3, 32)


def test_the_mean_over_all_positions_comes_last() -> None:
    tower = VGG(40).eval()
    pictures = torch.rand(2, 1, 40, 100)
    torch.testing.assert_close(tower(pictures), tower.layers(pictures).mean((2, 3)))


@pytest.mark.parametrize("stride", [1, 2])
def test_fused_towers_give_the_same_features(stride: int) -> None:
    tower = VGG(136, stride=stride)
    with torch.no_grad():
        for _ in range(3):
            tower(torch.rand(8, 136, 100))
    tower.eval()
    pictures = torch.rand(4, 136, 100)
    fused = tower.fused()
    assert not any(isinstance(layer, nn.BatchNorm2d) for layer in fused.layers)
    assert any(isinstance(layer, nn.BatchNorm2d) for layer in tower.layers)
    torch.testing.assert_close(fused(pictures), tower(pictures), rtol=1e-4, atol=1e-5)


def test_it_is_built_again_from_its_config() -> None:
    tower = VGG(32, 48, 8, maps=(4, 6), stride=2)
    again = build_tower(tower_config(tower))
    again.load_state_dict(tower.state_dict())
    pictures = torch.rand(2, 32, 48)
    torch.testing.assert_close(again.eval()(pictures), tower.eval()(pictures))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"height": 8}, "at least 16 x 16"),
        ({"height": 24, "stride": 2}, "at least 31 x 31"),
        ({"height": 0}, "positive whole numbers"),
        ({"height": 40, "maps": ()}, "positive whole numbers"),
    ],
)
def test_impossible_sizes_are_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ccal.InputError, match=words):
        VGG(**arguments)


@pytest.mark.parametrize("shape", [(2, 39, 100), (2, 3, 40, 100), (40, 100)])
def test_other_pictures_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ccal.InputError, match="takes pictures"):
        VGG(40)(torch.rand(shape))


def test_a_residual_tower_starts_as_its_linear_map() -> None:
    tower, pictures = ResidualVGG(40, 50, 4, stride=2), torch.rand(6, 40, 50)
    torch.testing.assert_close(tower(pictures), tower.linear(pooled_pixels(pictures)))
    tower(pictures).square().sum().backward()
    last = tower.network.layers[-1]
    assert isinstance(last, nn.BatchNorm2d)
    assert last.weight.grad is not None
    assert last.weight.grad.abs().max() > 0
    again = build_tower(tower_config(tower)).eval()
    again.load_state_dict(tower.state_dict())
    torch.testing.assert_close(again(pictures), tower.eval()(pictures))


@pytest.mark.parametrize(
    ("height", "width", "size"), [(40, 100, 2), (136, 100, 4), (20, 30, 1), (45, 47, 2)]
)
def test_pooled_pixels_are_means_of_squares(height: int, width: int, size: int) -> None:
    pictures = torch.rand(3, height, width)
    rows, columns = height // size, width // size
    assert rows * columns <= 1000
    cut = pictures[:, : rows * size, : columns * size]
    expected = cut.reshape(3, rows, size, columns, size).mean((2, 4)).flatten(1)
    torch.testing.assert_close(pooled_pixels(pictures), expected)
    torch.testing.assert_close(pooled_pixels(pictures[:, None]), expected)
