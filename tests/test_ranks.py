from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ccal.errors import InputError
from ccal.ranks import counterpart_ranks, mean_reciprocal_rank


def naive_ranks(x: torch.Tensor, y: torch.Tensor) -> list[int]:
    """Sort the candidates of every query and look the counterpart up."""
    ranks = []
    for i, query in enumerate(x.double()):
        cosines = [float(query @ c / query.norm() / c.norm()) for c in y.double()]
        ranks.append(1 + sum(c > cosines[i] for c in cosines))
    return ranks


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ranks_are_those_of_a_sorted_list(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.randn(60, 5, dtype=dtype)
    y = x + 2 * torch.randn(60, 5, dtype=dtype)
    assert counterpart_ranks(x, y).tolist() == naive_ranks(x, y)
    expected = sum(1 / r for r in naive_ranks(x, y)) / 60
    assert mean_reciprocal_rank(x, y) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("chunk", [1, 7, 59, 60, 1000])
def test_the_chunk_size_does_not_matter(chunk: int) -> None:
    torch.manual_seed(1)
    x, y = torch.randn(60, 5).double(), torch.randn(60, 5).double()
    assert torch.equal(counterpart_ranks(x, y, chunk=chunk), counterpart_ranks(x, y))


@settings(max_examples=30, deadline=None)
@given(
    n=st.integers(1, 300), k=st.integers(1, 70), chunk=st.integers(1, 300), seed=st.integers(0, 99)
)
def test_a_view_finds_itself(n: int, k: int, chunk: int, seed: int) -> None:
    # In float32 the cosine of a vector with itself may round below that with another.
    x = torch.randn(n, k, generator=torch.Generator().manual_seed(seed)).double()
    assert bool((counterpart_ranks(x, x.clone(), chunk=chunk) == 1).all()) or k == 1


def test_length_does_not_count() -> None:
    torch.manual_seed(2)
    x, y = torch.randn(40, 6).double(), torch.randn(40, 6).double()
    lengths = torch.logspace(-200, 200, 40, dtype=torch.float64)[:, None]
    assert torch.equal(counterpart_ranks(x * lengths, y), counterpart_ranks(x, y))
    assert torch.equal(counterpart_ranks(x, y * lengths.flip(0)), counterpart_ranks(x, y))


def test_ties_favour_the_counterpart_unless_pessimistic() -> None:
    x, same = torch.randn(4, 3), torch.ones(4, 3)
    assert counterpart_ranks(x, same).tolist() == [1, 1, 1, 1]
    assert counterpart_ranks(x, same, pessimistic=True).tolist() == [4, 4, 4, 4]
    assert mean_reciprocal_rank(x, torch.zeros(4, 3), pessimistic=True) == 0.25


def test_half_precision_is_compared_in_float32() -> None:
    x = torch.tensor([[1.0, 1e-2], [1.0, 0.0]])
    y = torch.tensor([[1.0, 1.1e-2], [1.0, 0.0]])
    assert counterpart_ranks(x.half(), y.half(), pessimistic=True).tolist() == [1, 1]


def test_bad_input_is_refused() -> None:
    x = torch.randn(4, 3)
    for y in (torch.randn(5, 3), torch.randn(4, 2), torch.randn(4)):
        with pytest.raises(InputError, match="x and y must be pairs"):
            counterpart_ranks(x, y)
    x[2, 1] = float("nan")
    with pytest.raises(InputError, match="y has NaN or infinite values in 1 of 4 rows"):
        counterpart_ranks(torch.randn(4, 3), x)


def test_autocast_does_not_touch_ranks() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(700, 8), torch.randn(700, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(counterpart_ranks(x, y), counterpart_ranks(x.double(), y.double()))
