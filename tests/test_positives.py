"""Which items belong together: against sets of pairs, and ranks against a double loop."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ccal.errors import InputError
from ccal.evaluation import Ties, evaluate_embeddings, two_way_ranks
from ccal.numbering import components, numbered
from ccal.positives import Positives
from ccal.ranks import mean_reciprocal_ranks, weighted_reciprocal_ranks
from tests.evaluation import naive

Keys = st.lists(st.integers(0, 4), min_size=1, max_size=25)


@st.composite
def relations(draw: st.DrawFn) -> tuple[Positives, list[list[bool]]]:
    """Pairs that share items of either side, with and without groups; and what is right."""
    keys = draw(st.lists(st.tuples(*[st.integers(0, 9)] * 3), min_size=1, max_size=30))
    x_items, y_items, groups = (np.array(column) for column in zip(*keys, strict=True))
    grouped = draw(st.booleans())
    positives, x_first, y_first = Positives.of_items(x_items, y_items, groups if grouped else None)
    assert x_items[x_first][positives.x_rows.numpy()].tolist() == x_items.tolist()
    assert y_items[y_first][positives.y_rows.numpy()].tolist() == y_items.tolist()
    links = set(zip(x_items, y_items, strict=True))
    if grouped:
        links |= {(a, b) for a, _, g in keys for _, b, h in keys if g == h}
    return positives, [[(a, b) in links for b in y_items[y_first]] for a in x_items[x_first]]


@settings(max_examples=60, deadline=None)
@given(relation=relations(), data=st.data())
def test_links_are_the_pairs_and_the_groups(
    relation: tuple[Positives, list[list[bool]]], data: st.DataObject
) -> None:
    positives, right = relation
    n, m = positives.shape
    expected = {(i, j) for i in range(n) for j in range(m) if right[i][j]}
    rows, columns = (side.tolist() for side in positives.links())
    assert rows == sorted(rows)
    assert set(zip(rows, columns, strict=True)) == expected
    size = data.draw(st.integers(1, 20))
    parts = list(positives.chunks(size))
    assert torch.cat([part[0] for part in parts]).tolist() == rows
    assert torch.cat([part[1] for part in parts]).tolist() == columns
    for row in range(n):
        assert set(positives.of_x(row).tolist()) == {j for i, j in expected if i == row}
    for column in range(m):
        assert set(positives.of_y(column).tolist()) == {i for i, j in expected if j == column}
    height, width = data.draw(st.tuples(st.integers(1, 12), st.integers(1, 12)))
    found = set()
    for strip in positives.strips(height):
        for left in range(0, m, width):
            block = strip.within(left, left + width)
            if block is not None:
                assert all(left <= j < left + width for j in block[1].tolist())
                found |= set(zip(*(side.tolist() for side in block), strict=True))
    assert found == expected


@settings(max_examples=60, deadline=None)
@given(
    relation=relations(),
    k=st.integers(1, 5),
    seed=st.integers(0, 999),
    block=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    ties=st.sampled_from(["optimistic", "pessimistic"]),
    whole=st.booleans(),
)
def test_ranks_equal_the_double_loop(
    relation: tuple[Positives, list[list[bool]]],
    k: int,
    seed: int,
    block: tuple[int, int],
    ties: Ties,
    whole: bool,
) -> None:
    positives, right = relation
    generator = torch.Generator().manual_seed(seed)
    x, y = (torch.randn(n, k, generator=generator).double() for n in positives.shape)
    if whole:  # small integers: many exact ties, and zero rows
        x, y = x.round().clamp(-1, 1), y.round().clamp(-1, 1)
    with patch("ccal.ranks.BLOCK", block):
        found = two_way_ranks(x, y, groups=positives, ties=ties)
    pessimistic = ties == "pessimistic"
    expected = naive.general_ranks(x, y, right, pessimistic=pessimistic, close=1.7e-15)
    assert (found[0].tolist(), found[1].tolist()) == expected
    weights = torch.rand(2, k, generator=generator).double() + 0.5
    both = [
        mean_reciprocal_ranks(x * w, y * w, positives=positives, pessimistic=True) for w in weights
    ]
    assert weighted_reciprocal_ranks(x, y, weights, positives=positives) == pytest.approx(
        [sum(pair) / 2 for pair in both], abs=1e-12
    )


@settings(max_examples=60, deadline=None)
@given(relation=relations())
def test_units_are_the_connected_items(relation: tuple[Positives, list[list[bool]]]) -> None:
    positives, right = relation
    n, m = positives.shape
    # Reachability by squaring the relation of all items until it stays.
    near = np.eye(n + m, dtype=bool)
    near[:n, n:] = right
    near |= near.T
    for _ in range(8):
        near = near @ near
    x_units, y_units = positives.units()
    units = np.concatenate((x_units, y_units))
    assert (near == (units[:, None] == units)).all()
    first, numbers = numbered(x_units)
    assert x_units.tolist() == numbers.tolist()
    assert len(first) == units.max() + 1


@given(Keys)
def test_numbers_count_in_order_of_occurrence(keys: list[int]) -> None:
    first, numbers = numbered(np.array(keys))
    seen = list(dict.fromkeys(keys))
    assert numbers.tolist() == [seen.index(key) for key in keys]
    assert first.tolist() == [keys.index(key) for key in seen]


def test_a_long_chain_is_one_component() -> None:
    order = np.random.default_rng(0).permutation(5000)
    assert components((order + 1) // 2, order // 2).max() == 0
    assert components(order // 2).max() == 2499


def test_one_group_of_all_needs_no_matrix_of_links() -> None:
    n = 3000
    rows = torch.arange(n)
    x = torch.randn(n, 4, generator=torch.Generator().manual_seed(0))
    positives = Positives(rows, rows, torch.zeros(n, dtype=torch.int64))
    assert max(len(part[0]) for part in positives.chunks()) <= 8192 + n
    assert two_way_ranks(x, x, groups=positives)[0].eq(1).all()


def test_groups_of_captions_are_a_kind_of_positives() -> None:
    x, y, groups = naive.captions(30, 90, 4)
    positives = Positives(groups, torch.arange(90))
    assert evaluate_embeddings(x, y, groups=positives) == evaluate_embeddings(x, y, groups=groups)


def test_bad_pairs_are_refused() -> None:
    rows = torch.arange(3)
    with pytest.raises(InputError, match=r"at least one, but the lengths are \[3, 2\]"):
        Positives(rows, rows[:2])
    with pytest.raises(InputError, match="1 of 4 rows of y are in no pair"):
        Positives(rows, torch.tensor([0, 3, 1]))
    with pytest.raises(InputError, match="Rows of x count from 0, got -1"):
        Positives(rows - 1, rows)
    with pytest.raises(InputError, match="groups are of 3 rows of x and 3 of y, but x has 2"):
        two_way_ranks(torch.eye(2), torch.eye(2), groups=Positives(rows, rows))
    with pytest.raises(InputError, match="positives are of 3 rows of x"):
        mean_reciprocal_ranks(torch.eye(2), torch.eye(2), positives=Positives(rows, rows))
