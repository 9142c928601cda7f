from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from ccal.cca import CCA
from ccal.encoders import DenseTower, LinearTower, build_tower, tower_config
from ccal.errors import InputError
from tests.reference import correlated_views


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


def test_an_initialised_tower_computes_linear_cca() -> None:
    x, y = correlated_views(200, 6, 9, dtype=torch.float32)
    cca = CCA(4, power=0).fit(x, y)
    tower = LinearTower(6, 4, dropout=0.5).eval()
    tower.initialise(cca.x_mean_, cca.x_projection_)
    torch.testing.assert_close(tower(x), cca.transform(x), atol=1e-5, rtol=1e-4)


def test_roots_come_first() -> None:
    tower = LinearTower(3, 3, root=True).eval()
    tower.initialise(np.ones(3), np.eye(3))
    torch.testing.assert_close(
        tower(torch.tensor([[4.0, -9.0, 0.0]])), torch.tensor([[1.0, -4, -1]])
    )


def test_config_round_trip() -> None:
    tower = LinearTower(3, 2, root=True, dropout=0.25)
    again = build_tower(tower_config(tower))
    again.load_state_dict(tower.state_dict())
    assert tower_config(again) == tower_config(tower)
    x = torch.randn(5, 3)
    assert torch.equal(again.eval()(x), tower.eval()(x))


def test_shapes_are_checked() -> None:
    tower = LinearTower(3, 2)
    with pytest.raises(InputError, match=r"\(3, 2\)"):
        tower.initialise(np.zeros(3), np.eye(3))
    with pytest.raises(InputError, match=r"\(n, 3\)"):
        tower(torch.zeros(4, 5))


@pytest.mark.parametrize("size", [1e-20, 1e-3, 1.0, 1e30])
def test_features_of_any_size_give_gradients_of_float32(size: float) -> None:
    x = torch.randn(50, 3) * size
    tower = LinearTower(3, 2, hidden=4)
    tower.initialise(np.zeros(3), np.ones((3, 2)) / size, spread=size)
    torch.testing.assert_close(tower(x), (x / size) @ torch.ones(3, 2))
    tower(x).sum().backward()
    for parameter in tower.parameters():
        assert parameter.grad is None or parameter.grad.norm().isfinite()


def test_dropout_of_a_linear_tower_keeps_the_mean() -> None:
    tower = LinearTower(1000, 1, dropout=0.3)
    tower.initialise(np.zeros(1000), np.ones((1000, 1)))
    torch.manual_seed(0)
    found = tower(torch.ones(2000, 1000))
    torch.manual_seed(0)
    torch.testing.assert_close(tower(torch.ones(2000, 1000)), found)
    assert found.mean().item() == pytest.approx(1000, rel=1e-3)
    # Of numbers that are kept with the probability p, each divided by p.
    assert found.var().item() == pytest.approx(1000 * 0.3 / 0.7, rel=0.1)
    assert tower.eval()(torch.ones(1, 1000)).item() == pytest.approx(1000)
    assert LinearTower(2, 1).train()(torch.ones(1, 2)).isfinite().all()
