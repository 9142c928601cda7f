"""Pairs that share items: embedded once, judged as if each pair had its own."""

from __future__ import annotations

import pytest
import torch

from ccal.errors import InputError
from ccal.evaluation import EmbeddedPairs, evaluate_classes, evaluate_embeddings

X, Y = torch.randn(2, 12, 5, generator=torch.Generator().manual_seed(0))
GROUPS = torch.arange(12) // 3
EVERY = torch.arange(12)


def test_either_modality_may_be_shared() -> None:
    one = EmbeddedPairs(("image", "text"), X[:4], Y, GROUPS, EVERY)
    other = EmbeddedPairs(("text", "image"), Y, X[:4], EVERY, GROUPS)
    expected = evaluate_embeddings(X[:4], Y, groups=GROUPS, names=("image", "text"))
    assert one.evaluate() == expected
    assert other.evaluate().x_to_y == expected.y_to_x
    assert (one.shared, other.shared) == (0, 1)
    assert one.shared_first()[3] == other.shared_first()[3] == ("image", "text")
    assert one.first_pairs(0).tolist() == other.first_pairs(1).tolist() == [0, 3, 6, 9]


def test_every_pair_has_its_own() -> None:
    pairs = EmbeddedPairs(("x", "y"), X, Y, EVERY, EVERY)
    assert pairs.shared is None
    assert pairs.evaluate(bootstrap=0) == evaluate_embeddings(X, Y, bootstrap=0)
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
