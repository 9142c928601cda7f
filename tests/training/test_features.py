from __future__ import annotations

import numpy as np
import pytest

from ccal.data import Pairs
from ccal.errors import InputError
from ccal.features import TfidfVectoriser
from ccal.training import PairFeatures
from ccal.training.batches import concatenated

TEXTS = ["a dog", "a cat", "two dogs", "no cat", "a cat and a dog", "dog dog cat"]


def pairs() -> Pairs:
    return Pairs({"image": np.random.default_rng(0).normal(size=(6, 3)), "text": TEXTS})


def test_batches_are_rows_of_the_front_ends_features() -> None:
    tfidf = TfidfVectoriser(min_count=1).fit(TEXTS)
    features = PairFeatures(pairs(), {"text": tfidf})
    x, y = features.batch(np.array([4, 0, 4]))
    assert np.array_equal(x.numpy(), pairs().column("image")[[4, 0, 4]].astype(np.float32))
    assert np.array_equal(y.numpy(), tfidf.transform([TEXTS[4], TEXTS[0], TEXTS[4]]))
    assert [len(x) for x, _ in features.batches(4)] == [4, 2]
    assert features.widths == (3, len(tfidf.vocabulary))


def test_two_sets_are_one_after_the_other() -> None:
    tfidf = TfidfVectoriser(min_count=1).fit(TEXTS)
    whole = PairFeatures(pairs(), {"text": tfidf})
    parts = (PairFeatures(pairs()[part], {"text": tfidf}) for part in ([0, 1], [2, 3, 4, 5]))
    joined = concatenated(*parts)
    assert len(joined) == 6
    assert joined.widths == whole.widths
    for rows in (np.array([5, 0, 1, 3]), np.array([0]), np.array([4]), slice(1, 5), slice(None)):
        for found, expected in zip(joined.batch(rows), whole.batch(rows), strict=True):
            assert np.array_equal(found, expected)


def test_what_the_towers_cannot_take_is_refused() -> None:
    with pytest.raises(InputError, match="text is text"):
        PairFeatures(pairs(), {})
    flat = Pairs({"a": np.zeros((4, 2, 2)), "b": np.zeros((4, 2))})
    with pytest.raises(InputError, match=r"a must be .*\(4, 2, 2\)"):
        PairFeatures(flat, {})
