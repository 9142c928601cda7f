"""FeatureUnion: equal parts, weights, and saving."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ccal.data import Pairs
from ccal.encoders import build_front_end, front_end_config, register_front_end
from ccal.errors import InputError, NotFittedError
from ccal.features import FeatureUnion, ImageFeatures, SparseRows, TfidfVectoriser
from ccal.training import front_ends as training_front_ends
from ccal.training.batches import PairFeatures
from ccal.training.front_ends import choose_weights

TEXTS = ["a red dog", "a dog", "two birds", "a bird, a red bird", "red"]


@register_front_end("numbered-texts")
class Numbered:
    """The text "i" becomes row i of random numbers, times `scale`; or of `noise` instead."""

    def __init__(self, *, scale: float = 1.0, noise: bool = False) -> None:
        self.scale, self.noise = scale, noise

    def transform(self, items: Sequence[str], /) -> NDArray[Any]:
        latent = np.random.default_rng(7 + self.noise).normal(size=(200, 6)).astype(np.float32)
        return self.scale * latent[[int(text) for text in items]]

    def config(self) -> dict[str, Any]:
        return {"scale": self.scale, "noise": self.noise}


def union(**options: Any) -> FeatureUnion:
    plain = TfidfVectoriser(min_count=1, lemmatise=False)
    pairs = TfidfVectoriser(min_count=1, lemmatise=False, pair_count=1)
    return FeatureUnion([plain, pairs], **options)


def test_parts_have_equal_total_variance_times_their_weight() -> None:
    joined = union(weights=[1.0, 3.0])
    rows = joined.fit_rows(TEXTS)
    width = len(joined.parts[0].vocabulary)  # type: ignore[attr-defined]
    spread = rows[:].var(axis=0)
    assert spread[:width].sum() == pytest.approx(1.0, rel=1e-5)
    assert spread[width:].sum() == pytest.approx(9.0, rel=1e-5)
    assert all(isinstance(part, SparseRows) for part in rows.parts)
    np.testing.assert_array_equal(rows[[3, 1]], rows[:][[3, 1]])
    np.testing.assert_array_equal(joined.transform(TEXTS), rows[:])
    joined.weights[1] = 6.0
    np.testing.assert_allclose(rows[:][:, width:].var(axis=0).sum(), 36.0, rtol=1e-5)


def test_a_saved_union_gives_the_same_rows() -> None:
    joined = union(weights=[1.0, 0.5])
    rows = joined.fit_rows(TEXTS)
    again = build_front_end(front_end_config(joined))
    assert isinstance(again, FeatureUnion)
    np.testing.assert_array_equal(again.transform(TEXTS), rows[:])


def test_what_does_not_fit_together_is_refused() -> None:
    tfidf = TfidfVectoriser()
    with pytest.raises(InputError, match="cannot join both"):
        FeatureUnion([tfidf, ImageFeatures()])
    with pytest.raises(InputError, match="two parts or more"):
        FeatureUnion([tfidf])
    with pytest.raises(InputError, match="a positive weight for each"):
        FeatureUnion([tfidf, tfidf], weights=[1.0])
    with pytest.raises(NotFittedError, match="fit_rows first"):
        FeatureUnion([Numbered(), Numbered()]).transform(["1"])


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("noise", [(True, False), (False, True)])
def test_training_gives_noise_the_smaller_weight(
    noise: tuple[bool, bool], wide: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_front_ends, "_WIDE", 0 if wide else 2)
    parts = [Numbered(scale=s, noise=n) for s, n in zip((1.0, 50.0), noise, strict=True)]
    joined = FeatureUnion(parts)
    texts = [str(number) for number in range(200)]
    mixing = np.random.default_rng(1).normal(size=(6, 9))
    x = Numbered().transform(texts) @ mixing + np.random.default_rng(2).normal(size=(200, 9))
    pairs = Pairs({"image": x.astype(np.float32), "text": texts})
    seen = PairFeatures(pairs[:120], {"text": joined}, fit=True)
    held = PairFeatures(pairs[120:], {"text": joined})
    choose_weights({"text": joined}, seen, held)
    assert joined.weights[0] == 1.0
    assert joined.weights[1] > 1 if noise[0] else joined.weights[1] < 1
    np.testing.assert_array_equal(held.arrays()[1], joined.transform(texts[120:]))
