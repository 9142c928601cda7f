from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ccal.errors import InputError
from ccal.retrieval.codes.heads import itq_heads, itq_rotation, shared_axes, sign_heads, unit_views
from tests.retrieval.codes.data import embedded_pairs


@settings(deadline=None)
@given(st.integers(1, 8), st.integers(0, 20), st.integers(1, 40))
def test_the_loss_never_rises_and_the_rotation_is_orthogonal(
    dims: int, seed: int, count: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(count, dims, generator=generator)
    rotation, losses = itq_rotation(values, 8, iterations=15, seed=seed)
    assert rotation.shape == (dims, 8)
    identity = torch.eye(dims, dtype=torch.float64)
    torch.testing.assert_close(rotation @ rotation.mT, identity, atol=1e-10, rtol=0)
    assert all(after <= before + 1e-12 for before, after in itertools.pairwise(losses))


def test_the_loss_is_that_of_its_definition() -> None:
    values = torch.randn(30, 8, dtype=torch.float64)
    _, losses = itq_rotation(values, 8, iterations=4)
    rotation, _ = itq_rotation(values, 8, iterations=3)
    scaled = values / values.square().mean().sqrt()
    squares = [(abs(entry) - 1) ** 2 for entry in (scaled @ rotation).flatten().tolist()]
    assert losses[3] == pytest.approx(sum(squares) / len(squares))


def test_corners_of_a_turned_cube_are_found() -> None:
    corners = torch.tensor(list(itertools.product([-1.0, 1.0], repeat=4)), dtype=torch.float64)
    turn = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64)).Q
    best = min(itq_rotation(corners @ turn, 4, seed=seed)[1][-1] for seed in range(10))
    assert best < 1e-6


def test_zeros_do_not_stop_it() -> None:
    rotation, losses = itq_rotation(torch.zeros(5, 4), 8, iterations=3)
    assert rotation.isfinite().all()
    assert losses[0] == 1


def test_shared_axes_are_ordered_by_agreement() -> None:
    x, y = (view - view.mean(0) for view in embedded_pairs(5000))
    axes = shared_axes(x, y)
    torch.testing.assert_close(axes.mT @ axes, torch.eye(12), atol=1e-5, rtol=0)
    shared = ((x @ axes) * (y @ axes)).mean(0)
    assert (shared.diff() < 1e-6).all()
    # The leading coordinate of these pairs is the leading axis.
    assert axes[:2, 0].norm() > 0.9


def test_heads_are_centred_by_view() -> None:
    x, y = unit_views(*embedded_pairs(400))
    for heads in (sign_heads(x, y, 8), itq_heads(x, y, 16)):
        for head, view in zip(heads, (x, y), strict=True):
            torch.testing.assert_close(
                head(view).mean(0), torch.zeros(len(head.bias)), atol=1e-5, rtol=0
            )


def test_signs_are_those_of_the_leading_coordinates() -> None:
    x, y = unit_views(*embedded_pairs(50))
    head, _ = sign_heads(x, y, 8)
    expected = [
        [entry > mean for entry, mean in zip(row, x.mean(0)[:8], strict=True)] for row in x[:, :8]
    ]
    assert (head(x) > 0).tolist() == expected


def test_the_same_seed_gives_the_same_rotation() -> None:
    x, y = unit_views(*embedded_pairs(60))
    first, again, other = (itq_heads(x, y, 16, seed=seed)[0].weight for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("dims", [0, 13, 17])
def test_dims_are_checked(dims: int) -> None:
    x, y = unit_views(*embedded_pairs(60))
    with pytest.raises(InputError, match="between 1 and 12"):
        itq_heads(x, y, 16, dims=dims)
