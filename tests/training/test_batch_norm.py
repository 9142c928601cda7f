from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ccal.training.batch_norm import batch_norm_over_ranks, unbiased_batch_norm
from ccal.training.parallel import average_gradients

LAYERS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "1d": (nn.BatchNorm1d(5), (5,)),
    "1d of sequences": (nn.BatchNorm1d(5), (5, 7)),
    "2d": (nn.BatchNorm2d(5, eps=1e-3), (5, 3, 4)),
    "cumulative": (nn.BatchNorm1d(5, momentum=None), (5,)),
    "plain": (nn.BatchNorm1d(5, affine=False), (5,)),
    "no statistics": (nn.BatchNorm1d(5, track_running_stats=False), (5,)),
}


def inputs(shape: tuple[int, ...]) -> Tensor:
    return 3 * torch.randn(12, *shape, generator=torch.Generator().manual_seed(0)) + 5


def steps(layer: nn.Module, x: Tensor, goal: Tensor) -> tuple[Tensor, Tensor]:
    """Two batches through a layer: outputs and gradients of inputs of the second."""
    layer(x.flip(0))
    x = x.clone().requires_grad_()
    output = layer(x)
    loss = ((output - goal) ** 3).sum()
    loss.backward()
    assert x.grad is not None
    return output.detach(), x.grad


def one_of_two(rank: int) -> dict[str, Any]:
    mine = slice(0, 5) if rank == 0 else slice(5, 12)
    results: dict[str, Any] = {}
    for name, (layer, shape) in LAYERS.items():
        x, names = inputs(shape), list(layer.state_dict())
        with batch_norm_over_ranks(layer):
            assert "forward" in vars(layer)
            assert list(layer.state_dict()) == names
            output, gradient = steps(layer, x[mine], torch.sin(x)[mine])
            average_gradients(list(layer.parameters()) or [nn.Parameter(torch.zeros(1))])
        weights = [2 * p.grad for p in layer.parameters() if p.grad is not None]
        results[name] = output, gradient, weights, layer.state_dict()
        assert "forward" not in vars(layer)
    return results


@pytest.fixture(scope="module")
def ranks(on_two_ranks: Callable[..., list[dict[str, Any]]]) -> list[dict[str, Any]]:
    return on_two_ranks(one_of_two)


@pytest.mark.parametrize("name", LAYERS)
def test_two_uneven_ranks_are_one(name: str, ranks: list[dict[str, Any]]) -> None:
    layer, shape = LAYERS[name]
    x = inputs(shape)
    output, gradient = steps(layer, x, torch.sin(x))
    for number, expected in ((0, output), (1, gradient)):
        together = torch.cat([rank[name][number] for rank in ranks])
        torch.testing.assert_close(together, expected, rtol=1e-4, atol=1e-4)
    weights = [p.grad for p in layer.parameters()]
    for rank in ranks:
        torch.testing.assert_close(rank[name][2], weights, rtol=1e-4, atol=1e-3)
        torch.testing.assert_close(rank[name][3], layer.state_dict(), rtol=1e-5, atol=1e-5)


def test_one_process_computes_as_torch_does() -> None:
    layer, twin = nn.BatchNorm1d(5), nn.BatchNorm1d(5)
    x = inputs((5,))
    with batch_norm_over_ranks(layer):
        assert "forward" not in vars(layer)
        assert torch.equal(layer(x), twin(x))


def test_running_statistics_have_no_bias_from_their_start() -> None:
    norm, plain = nn.BatchNorm1d(3), nn.BatchNorm1d(3)
    batches = [0.01 * torch.randn(40, 3) + 5 for _ in range(30)]
    with unbiased_batch_norm(norm):
        for number, batch in enumerate(batches, start=1):
            norm(batch)
            plain(batch)
            if number == 4:
                assert norm.running_mean is not None
                torch.testing.assert_close(norm.running_mean, torch.cat(batches[:4]).mean(0))
                norm.eval()(batch)
                norm.train()
    assert norm.running_var is not None
    assert plain.running_var is not None
    assert norm.momentum == 0.1
    torch.testing.assert_close(norm.running_var, torch.full((3,), 1e-4), rtol=0.3, atol=0)
    assert plain.running_var.min() > 1e-2
