from __future__ import annotations

from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ccal.errors import InputError
from ccal.ranks import (
    counterpart_ranks,
    inverse_norms,
    mean_reciprocal_ranks,
    unit_rows,
    weighted_reciprocal_ranks,
)


def naive_ranks(x: torch.Tensor, y: torch.Tensor) -> list[int]:
    """Sort the candidates of every query and look the counterpart up."""
    ranks = []
    for i, query in enumerate(x.double()):
        cosines = [float(query @ c / query.norm() / c.norm()) for c in y.double()]
        ranks.append(1 + sum(c > cosines[i] for c in cosines))
    return ranks


def assert_same(found: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ranks_are_those_of_a_sorted_list(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.randn(60, 5, dtype=dtype)
    y = x + 2 * torch.randn(60, 5, dtype=dtype)
    expected = naive_ranks(x, y), naive_ranks(y, x)
    assert tuple(ranks.tolist() for ranks in counterpart_ranks(x, y)) == expected
    means = [sum(1 / r for r in ranks) / 60 for ranks in expected]
    assert mean_reciprocal_ranks(x, y) == pytest.approx(means, abs=1e-12)


@pytest.mark.parametrize("block", [(1, 1), (7, 3), (59, 60), (60, 59), (1000, 1000)])
def test_the_size_of_blocks_does_not_matter(block: tuple[int, int]) -> None:
    torch.manual_seed(1)
    x, y = torch.randn(60, 5).double(), torch.randn(60, 5).double()
    y[10:20] = y[30:40]  # duplicates tie in whatever block they fall
    expected = counterpart_ranks(x, y)
    with patch("ccal.ranks.BLOCK", block):
        assert_same(counterpart_ranks(x, y), expected)


@settings(max_examples=30, deadline=None)
@given(
    n=st.integers(1, 300), k=st.integers(1, 70), rows=st.integers(1, 300), seed=st.integers(0, 99)
)
def test_a_view_finds_itself(n: int, k: int, rows: int, seed: int) -> None:
    # In float32 the cosine of a vector with itself may round below that with another.
    x = torch.randn(n, k, generator=torch.Generator().manual_seed(seed)).double()
    with patch("ccal.ranks.BLOCK", (rows, 2 * rows)):
        assert all(found.eq(1).all() for found in counterpart_ranks(x, x.clone()))


def test_length_does_not_count() -> None:
    torch.manual_seed(2)
    x, y = torch.randn(40, 6).double(), torch.randn(40, 6).double()
    lengths = torch.logspace(-200, 200, 40, dtype=torch.float64)[:, None]
    assert_same(counterpart_ranks(x * lengths, y), counterpart_ranks(x, y))
    assert_same(counterpart_ranks(x, y * lengths.flip(0)), counterpart_ranks(x, y))


def test_ties_favour_the_counterpart_unless_pessimistic() -> None:
    x, same = torch.randn(4, 3), torch.ones(4, 3)
    assert counterpart_ranks(x, same)[0].tolist() == [1, 1, 1, 1]
    assert counterpart_ranks(x, same, pessimistic=True)[0].tolist() == [4, 4, 4, 4]
    assert mean_reciprocal_ranks(x, torch.zeros(4, 3), pessimistic=True) == (0.25, 0.25)


def test_half_precision_is_compared_in_float32() -> None:
    x = torch.tensor([[1.0, 1e-2], [1.0, 0.0]])
    y = torch.tensor([[1.0, 1.1e-2], [1.0, 0.0]])
    for ranks in counterpart_ranks(x.half(), y.half(), pessimistic=True):
        assert ranks.tolist() == [1, 1]


def test_bad_input_is_refused() -> None:
    x = torch.randn(4, 3)
    for y in (torch.randn(5, 3), torch.randn(4, 2), torch.randn(4), torch.randn(0, 3)):
        with pytest.raises(InputError, match="x and y must be pairs"):
            counterpart_ranks(x, y)
    x[2, 1] = float("nan")
    with pytest.raises(InputError, match="y has NaN or infinite values in 1 of 4 rows"):
        counterpart_ranks(torch.randn(4, 3), x)


def test_autocast_does_not_touch_ranks() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(700, 8), torch.randn(700, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_same(counterpart_ranks(x, y), counterpart_ranks(x.double(), y.double()))


def test_weights_of_the_axes() -> None:
    torch.manual_seed(3)
    x = torch.randn(50, 6).double()
    y, weights = x + torch.randn(50, 6), torch.rand(4, 6).double()
    expected = [sum(mean_reciprocal_ranks(x * w, y * w, pessimistic=True)) / 2 for w in weights]
    assert weighted_reciprocal_ranks(x, y, weights) == pytest.approx(expected, abs=1e-12)
    assert weighted_reciprocal_ranks(x, 0 * y, weights) == pytest.approx([1 / 50] * 4)


def test_inverse_norms_make_unit_rows() -> None:
    x = torch.randn(20, 5).double()
    x[3] = 0
    torch.testing.assert_close(x * inverse_norms(x), unit_rows(x, "x"))
    assert inverse_norms(torch.full((1, 2), 1e200, dtype=torch.float64)).isnan().all()
