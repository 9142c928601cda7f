from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ccal.cca import Moments
from ccal.errors import InputError
from tests.reference import correlated_views


def assert_same(a: Moments, b: Moments) -> None:
    assert a.count == b.count
    for name in ("mean_x", "mean_y", "xx", "yy", "xy"):
        torch.testing.assert_close(getattr(a, name), getattr(b, name), rtol=1e-12, atol=1e-12)


def test_moments_are_those_of_torch_cov() -> None:
    x, y = correlated_views(50, 3, 4)
    cov = Moments.of(x, y).covariances()
    joint = torch.cov(torch.cat((x, y), dim=1).T)
    torch.testing.assert_close(cov.xx, joint[:3, :3])
    torch.testing.assert_close(cov.yy, joint[3:, 3:])
    torch.testing.assert_close(cov.xy, joint[:3, 3:])


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=6), st.floats(-1e3, 1e3))
def test_chunks_merge_to_the_whole(sizes: list[int], offset: float) -> None:
    x, y = correlated_views(sum(sizes), 3, 2)
    x = x + offset
    parts = [Moments.of(a, b) for a, b in zip(x.split(sizes), y.split(sizes), strict=True)]
    merged = parts[0]
    for part in parts[1:]:
        merged = merged + part
    assert merged.count == sum(sizes)
    whole = Moments.of(x, y)
    for name in ("mean_x", "mean_y", "xx", "yy", "xy"):
        value, expected = getattr(merged, name), getattr(whole, name)
        assert (value - expected).abs().max() <= 1e-11 * (1 + abs(offset)) * sum(sizes)


def test_merging_is_symmetric() -> None:
    x, y = correlated_views(20, 2, 2)
    a, b = Moments.of(x[:5], y[:5]), Moments.of(x[5:], y[5:])
    assert_same(a + b, b + a)


def test_float32_samples_with_a_large_mean_keep_their_covariance() -> None:
    x, y = correlated_views(1000, 3, 3)
    shifted = (x + 4096).float()
    exact = Moments.of(shifted.double(), y).covariances().xx
    torch.testing.assert_close(Moments.of(shifted, y).covariances().xx, exact, rtol=1e-12, atol=0)


def test_gradient_flows_to_the_samples() -> None:
    x, y = correlated_views(6, 2, 3)
    x.requires_grad_()
    y.requires_grad_()

    def merged(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        moments = Moments.of(x[:2], y[:2]) + Moments.of(x[2:], y[2:])
        return moments.mean_x, moments.xx, moments.yy, moments.xy

    assert torch.autograd.gradcheck(merged, (x, y))


def test_without_a_process_group_all_reduce_changes_nothing() -> None:
    moments = Moments.of(*correlated_views(9, 2, 2))
    assert moments.all_reduce() is moments


def test_views_of_different_length_are_refused() -> None:
    with pytest.raises(InputError, match="x has 3 rows and y has 4"):
        Moments.of(torch.randn(3, 2), torch.randn(4, 2))


def test_empty_moments_add_nothing() -> None:
    x, y = torch.randn(20, 3), torch.randn(20, 2)
    whole, nothing = Moments.of(x, y), Moments.of(x[:0], y[:0])
    for both in (nothing + whole, whole + nothing, nothing + nothing + whole):
        assert both.count == 20
        assert torch.equal(both.mean_x, whole.mean_x)
        assert torch.equal(both.xy, whole.xy)


def test_scaled_moments_are_those_of_scaled_features() -> None:
    x, y = correlated_views(50, 3, 4)
    by_x, by_y = torch.tensor([1.0, 2.0, 0.5]).double(), torch.tensor([3.0, 1.0, 1.0, 0.1]).double()
    assert_same(Moments.of(x, y).scaled(by_x, by_y), Moments.of(x * by_x, y * by_y))
