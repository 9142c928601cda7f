"""Pairs that share items: embedded once, judged as if each pair had its own."""

from __future__ import annotations

import pytest
import torch

from ccal.errors import InputError
from ccal.evaluation import EmbeddedPairs, evaluate_classes, evaluate_embeddings
from tests.evaluation import naive

X, Y = torch.randn(2, 12, 5, generator=torch.Generator().manual_seed(0))
GROUPS = torch.arange(12) // 3
EVERY = torch.arange(12)


def test_either_modality_may_be_shared() -> None:
    one = EmbeddedPairs(("image", "text"), X[:4], Y, GROUPS, EVERY)
    other = EmbeddedPairs(("text", "image"), Y, X[:4], EVERY, GROUPS)
    expected = evaluate_embeddings(X[:4], Y, groups=GROUPS, names=("image", "text"))
    assert one.evaluate(ties="optimistic") == expected
    assert other.evaluate(ties="optimistic").x_to_y == expected.y_to_x
    assert one.first_pairs(0).tolist() == other.first_pairs(1).tolist() == [0, 3, 6, 9]


def test_every_pair_has_its_own() -> None:
    pairs = EmbeddedPairs(("x", "y"), X, Y, EVERY, EVERY)
    expected = evaluate_embeddings(X, Y, bootstrap=0, ties="pessimistic")
    assert pairs.evaluate(bootstrap=0) == expected
    assert pairs.raw_pairs(3)[0].tolist() == X[[0, 5, 11]].tolist()


def test_raw_embeddings_pair_by_pair() -> None:
    pairs = EmbeddedPairs(("x", "y"), X[:4], Y, GROUPS, EVERY, raw=(2 * X[:4], 2 * Y))
    x, y = pairs.raw_pairs()
    assert torch.equal(x, 2 * X[GROUPS])
    assert torch.equal(y, 2 * Y)


def test_classes_have_shared_items_once() -> None:
    labels = GROUPS // 2
    pairs = EmbeddedPairs(("x", "y"), X[:4], Y, GROUPS, EVERY, labels=labels, classes=("a", "b"))
    expected = evaluate_classes(Y, labels, X[:4], torch.tensor([0, 0, 1, 1]), k=2, names=("a", "b"))
    assert pairs.evaluate_classes() == expected
    with pytest.raises(InputError, match="The pairs have no labels"):
        EmbeddedPairs(("x", "y"), X[:4], Y, GROUPS, EVERY).evaluate_classes()


def test_both_modalities_may_be_shared() -> None:
    # Three captions a picture, and the first caption of every picture is the same.
    y_rows = torch.where(EVERY % 3 == 0, 0, EVERY - EVERY // 3)
    pairs = EmbeddedPairs(("image", "text"), X[:4], Y[:9], GROUPS, y_rows)
    report = pairs.evaluate(bootstrap=100)
    right = torch.zeros(4, 9, dtype=torch.bool)
    right[GROUPS, y_rows] = True
    assert (report.x_to_y.ranks.tolist(), report.y_to_x.ranks.tolist()) == naive.general_ranks(
        X[:4], Y[:9], right.tolist(), pessimistic=True, close=1e-6
    )
    # One caption connects all pictures, so nothing is left to draw.
    assert report.x_to_y.low is not None
    assert report.x_to_y.low.mrr == pytest.approx(report.x_to_y.measures.mrr)
    assert report.x_to_y.low == report.x_to_y.high


def test_raw_items_of_some_pairs_keep_their_relation() -> None:
    pairs = EmbeddedPairs(("x", "y"), X[:4], Y, GROUPS, EVERY, groups=GROUPS // 2)
    assert pairs.raw_items(12)[2] is pairs.positives
    x, y, positives = pairs.raw_items(4)
    assert torch.equal(x, X[[0, 1, 2, 3]])
    assert torch.equal(y, Y[[0, 3, 7, 11]])
    assert positives.links()[1].tolist() == [0, 1, 0, 1, 2, 3, 2, 3]
