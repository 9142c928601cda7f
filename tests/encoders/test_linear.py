from __future__ import annotations

import numpy as np
import pytest
import torch

from ccal.cca import CCA
from ccal.encoders import LinearTower, build_tower, tower_config
from ccal.errors import InputError
from tests.reference import correlated_views


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
