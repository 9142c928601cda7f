from __future__ import annotations

import pytest
import torch
from torch import nn

from ccal.encoders import DenseTower, build_tower, tower_config
from ccal.errors import InputError


def test_the_papers_image_tower_is_one_linear_layer() -> None:
    tower = DenseTower(4096, 128)
    x = torch.randn(3, 4096)
    weight, bias = tower.parameters()
    torch.testing.assert_close(tower(x), x @ weight.T + bias)


def test_the_papers_text_tower() -> None:
    tower = DenseTower(5793, 128, hidden=(1024, 1024))
    kinds = [type(layer).__name__ for layer in tower.layers]
    assert kinds == ["Linear", "BatchNorm1d", "ELU"] * 2 + ["Linear"]
    assert [p.shape for p in tower.parameters() if p.ndim == 2] == [
        (1024, 5793),
        (1024, 1024),
        (128, 1024),
    ]


def test_weights_start_with_variance_one_over_inputs() -> None:
    weight = next(DenseTower(400, 300).parameters())
    assert weight.abs().max() <= (3 / 400) ** 0.5
    assert weight.var().item() == pytest.approx(1 / 400, rel=0.05)


def test_a_tower_is_built_again_from_its_configuration() -> None:
    tower = DenseTower(7, 3, hidden=(5,))
    copy = build_tower(tower_config(tower))
    copy.load_state_dict(tower.state_dict())
    x = torch.randn(4, 7)
    torch.testing.assert_close(copy.eval()(x), tower.eval()(x))


def test_errors() -> None:
    with pytest.raises(InputError, match=r"shape \(n, 7\), got \(4, 6\)"):
        DenseTower(7, 3)(torch.randn(4, 6))
    with pytest.raises(InputError, match=r"positive whole numbers, got \[7, 0, 3\]"):
        DenseTower(7, 3, hidden=(0,))
    with pytest.raises(InputError, match=r"no tower of type 'resnet'; known types are .*dense"):
        build_tower({"type": "resnet"})
    with pytest.raises(InputError, match="Linear cannot be saved"):
        tower_config(nn.Linear(2, 2))
