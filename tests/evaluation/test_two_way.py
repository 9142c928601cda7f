from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ccal.errors import InputError
from ccal.evaluation import Ties, two_way_ranks
from ccal.ranks import counterpart_ranks
from tests.evaluation import naive


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 20),
    extra=st.integers(0, 30),
    k=st.integers(1, 6),
    seed=st.integers(0, 10_000),
    block=st.tuples(st.integers(1, 30), st.integers(1, 40)),
    ties=st.sampled_from(["optimistic", "pessimistic"]),
    whole=st.booleans(),
)
def test_equals_the_double_loop(
    n: int, extra: int, k: int, seed: int, block: tuple[int, int], ties: Ties, whole: bool
) -> None:
    x, y, groups = naive.captions(n, n + extra, k, seed)
    if whole:  # small integers: many exact ties, and zero rows
        x, y = x.round().clamp(-1, 1), y.round().clamp(-1, 1)
    forth, back = two_way_ranks(x, y, groups=groups, ties=ties, block=block)
    expected = naive.ranks(x, y, groups.tolist(), pessimistic=ties == "pessimistic", close=1.7e-15)
    assert (forth.tolist(), back.tolist()) == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("block", [(5, 3), (7, 13), (64, 8), (512, 2048)])
def test_the_block_size_does_not_matter(block: tuple[int, int], dtype: torch.dtype) -> None:
    x, y, groups = naive.captions(150, 600, 5)
    x, y = x.to(dtype), y.to(dtype)
    y[100:300] = y[300:500]  # exact duplicates must tie in whatever block they fall
    for ties in ("optimistic", "pessimistic"):
        found = two_way_ranks(x.double(), y.double(), groups=groups, ties=ties)
        again = two_way_ranks(x, y, groups=groups, ties=ties, block=block)
        if dtype == torch.float64:
            assert all(map(torch.equal, found, again))
        else:  # a few near ties are ties in float32
            assert all((a - b).abs().max() <= 1 for a, b in zip(found, again, strict=True))


def test_full_blocks_do_not_overflow() -> None:
    x = torch.ones(600, 2)
    x[0] = torch.tensor([1.0, -1.0])
    y = torch.ones(5000, 2)
    groups = torch.arange(5000) % 600
    y[groups == 0] *= -1  # the counterparts of row 0 are last, by far
    forth, back = two_way_ranks(x, y, groups=groups, ties="pessimistic")
    own = torch.bincount(groups)
    others = torch.bincount(groups)[0]
    assert forth[1:].tolist() == (1 + 5000 - own[1:] - others).tolist()
    assert forth[0] == 5000 - own[0] + 1
    assert back[groups == 0].unique().tolist() == [1]
    assert back[groups != 0].unique().tolist() == [599]


def test_pairs_agree_with_counterpart_ranks() -> None:
    x = torch.randn(300, 8).double()
    y = x + 2 * torch.randn(300, 8).double()
    for found, expected in zip(two_way_ranks(x, y), counterpart_ranks(x, y), strict=True):
        assert torch.equal(found, expected)


@settings(max_examples=20, deadline=None)
@given(n=st.integers(1, 600), k=st.integers(2, 70), seed=st.integers(0, 99))
def test_a_view_finds_itself(n: int, k: int, seed: int) -> None:
    x = torch.randn(n, k, generator=torch.Generator().manual_seed(seed)) * 1e-20
    assert all(bool((r == 1).all()) for r in two_way_ranks(x, 1e30 * x))


def test_collapsed_embeddings_are_first_or_last() -> None:
    x, y = torch.rand(1, 64).expand(700, 64), torch.rand(1, 64).expand(700, 64)
    for ties, rank in (("optimistic", 1), ("pessimistic", 700)):
        both = two_way_ranks(x, y, ties=ties)  # type: ignore[arg-type]
        assert [r.unique().tolist() for r in both] == [[rank], [rank]]


def test_arrays_and_mixed_dtypes_are_taken() -> None:
    x, y, groups = naive.captions(10, 20, 4)
    expected = two_way_ranks(x, y.float().double(), groups=groups)
    found = two_way_ranks(x.numpy(), y.float(), groups=groups.int().numpy())
    assert all(map(torch.equal, expected, found))


@pytest.mark.parametrize(
    ("x", "y", "groups", "message"),
    [
        (torch.ones(3, 2), torch.ones(3, 4), None, "x has 2 columns and y has 4"),
        (torch.ones(3, 2), torch.ones(4, 2), None, "x has 3 rows and y has 4.*Pass groups"),
        (torch.ones(0, 2), torch.ones(0, 2), None, r"x must be a matrix.*\(0, 2\)"),
        (torch.ones(3), torch.ones(3), None, "x must be a matrix"),
        (torch.ones(2, 2), torch.ones(2, 2) * torch.nan, None, "y has NaN .* 2 of 2 rows"),
        (torch.ones(2, 2), torch.ones(3, 2), [0, 1, 2], "0 to 1, but they run from 0 to 2"),
        (torch.ones(2, 2), torch.ones(3, 2), [0, -1, 1], "from -1 to 1"),
        (torch.ones(3, 2), torch.ones(3, 2), [0, 0, 2], "1 of 3 rows of x have no .* row 1"),
        (torch.ones(3, 2), torch.ones(3, 2), [0, 1], "one entry for each of the 3 rows of y"),
        (torch.ones(2, 2), torch.ones(2, 2), [0.0, 1.0], "groups must be integers"),
        (torch.ones(2, 2, dtype=torch.bool), torch.ones(2, 2), None, "x must hold real numbers"),
    ],
)
def test_bad_input_is_refused(
    x: torch.Tensor, y: torch.Tensor, groups: list[int] | None, message: str
) -> None:
    given_groups = None if groups is None else torch.tensor(groups)
    with pytest.raises(InputError, match=message):
        two_way_ranks(x, y, groups=given_groups)


def test_bad_settings_are_refused() -> None:
    x = torch.ones(2, 2)
    with pytest.raises(InputError, match="ties must be"):
        two_way_ranks(x, x, ties="random")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="block must be"):
        two_way_ranks(x, x, block=(0, 8))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dim", [32, 512, 4096])
def test_duplicates_tie_however_wide(dim: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, dim, generator=generator, dtype=dtype)
    y = x + 0.1 * torch.randn(300, dim, generator=generator, dtype=dtype)
    x, y = x.repeat(2, 1), y.repeat(2, 1)
    for way in two_way_ranks(x, y):
        assert way.eq(1).all()
    for way in two_way_ranks(x, y, ties="pessimistic"):
        assert way.eq(2).all()
    assert counterpart_ranks(x, y)[0].eq(1).all()
    assert counterpart_ranks(x, y, pessimistic=True)[0].eq(2).all()


def test_reversed_and_foreign_arrays_are_taken() -> None:
    x = np.random.default_rng(0).normal(size=(20, 4))
    assert two_way_ranks(x[::-1], x[::-1].astype(">f8"))[0].eq(1).all()
