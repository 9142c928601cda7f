"""Pairs that share items: trained and validated as what they show, in whatever shape they come."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ccal.data import Pairs
from ccal.training import PairFeatures, Settings, embed_pairs, evaluate, train
from ccal.training.batches import concatenated, relation
from ccal.training.scoring import reciprocal_ranks
from tests.evaluation import naive

PHOTOS, EACH = 60, 3
QUICK: dict[str, Any] = {"max_epochs": 2, "tower": "linear", "train_on_all": False}


def captions(*, grouped: bool) -> Pairs:
    """Three captions a photo, one of which two photos share."""
    rng = np.random.default_rng(0)
    meaning = rng.normal(size=(PHOTOS, 4))
    photos = (meaning @ rng.normal(size=(4, 12)))[np.repeat(np.arange(PHOTOS), EACH)]
    texts = np.repeat(meaning, EACH, axis=0) @ rng.normal(size=(4, 10))
    texts += 0.5 * rng.normal(size=texts.shape)
    texts[-1] = texts[-4]
    views = {"photo": photos.astype(np.float32), "text": texts.astype(np.float32)}
    return Pairs(views, group=np.repeat(np.arange(PHOTOS), EACH) if grouped else None)


@pytest.mark.parametrize("method", ["refined", "linear", "ccal"])
def test_validation_is_measured_as_the_test_is(method: str) -> None:
    pairs = captions(grouped=False)
    held = pairs[120:]
    settings = Settings(**QUICK, method=method, dim=4)  # type: ignore[arg-type]
    trained = train(settings, pairs[:120], held, progress=False)
    report = evaluate(trained.model, held, bootstrap=0)
    for way, found in (("x_to_y", report.x_to_y), ("y_to_x", report.y_to_x)):
        valid = trained.validation[way]
        assert valid["mrr"] == pytest.approx(found.measures.mrr, abs=1e-9)
        assert (valid["queries"], valid["candidates"]) == (len(found.ranks), found.candidates)
    assert (report.x_to_y.candidates, report.y_to_x.candidates) == (59, 20)
    embedded = embed_pairs(trained.model, held)
    right = torch.zeros(20, 59, dtype=torch.bool)
    right[embedded.x_rows, embedded.y_rows] = True
    assert (report.x_to_y.ranks.tolist(), report.y_to_x.ranks.tolist()) == naive.general_ranks(
        embedded.x, embedded.y, right.tolist(), pessimistic=True, close=1e-6
    )
    for record in trained.history:
        counts = record["candidates_x_to_y"], record["candidates_y_to_x"]
        assert counts == (59, 20)


def test_a_row_a_caption_trains_like_a_list_of_captions() -> None:
    one, other = (
        train(Settings(**QUICK), pairs[:120], pairs[120:], progress=False)
        for pairs in (captions(grouped=True), captions(grouped=False))
    )
    assert one.validation == other.validation
    weights = zip(one.model.parameters(), other.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in weights)


def test_items_that_repeat_are_no_negatives_of_each_other() -> None:
    pairs = captions(grouped=False)
    features = PairFeatures(pairs, {})
    assert features.groups is not None
    assert features.groups.tolist() == np.repeat(np.arange(PHOTOS), EACH).tolist()
    both = concatenated(PairFeatures(pairs[:120], {}), PairFeatures(pairs[120:], {}))
    assert both.groups is not None
    assert np.array_equal(both.groups, features.groups)
    assert relation(features)[0].shape == (PHOTOS, PHOTOS * EACH - 1)


def test_classes_as_texts_mask_negatives_but_are_no_groups() -> None:
    rng = np.random.default_rng(0)
    names = np.eye(3, dtype=np.float32)[np.arange(90) % 3]
    features = PairFeatures(Pairs({"photo": rng.normal(size=(90, 4)), "name": names}), {})
    assert features.groups is None
    labels = features.labels(np.arange(6))
    assert labels is not None
    assert labels.tolist() == [0, 1, 2, 0, 1, 2]


def test_pairs_that_share_nothing_have_neither() -> None:
    rng = np.random.default_rng(0)
    rows = {name: rng.normal(size=(30, 4)) for name in ("a", "b")}
    features = PairFeatures(Pairs(rows), {})
    assert features.groups is None
    assert features.labels(np.arange(30)) is None


def test_scores_of_units_average_to_the_mrr() -> None:
    pairs = captions(grouped=False)
    features = PairFeatures(pairs, {})
    positives, (x_first, y_first) = relation(features)
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(n, 3, generator=generator) for n in positives.shape)
    right = np.zeros(positives.shape, dtype=bool)
    right[positives.links()] = True
    ranks = naive.general_ranks(x, y, right.tolist(), pessimistic=True, close=1e-6)
    scores = reciprocal_ranks(x, y, positives)
    assert len(scores) == PHOTOS - 1
    expected = sum(np.mean([1 / r for r in way]) for way in ranks) / 2
    assert float(scores.mean()) == pytest.approx(expected)
    assert (len(x_first), len(y_first)) == (PHOTOS, PHOTOS * EACH - 1)
