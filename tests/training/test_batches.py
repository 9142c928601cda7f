from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ccal.data import Pairs
from ccal.errors import InputError
from ccal.features import TfidfVectoriser, WordSequences
from ccal.training import PairFeatures, Settings
from ccal.training.batches import concatenated, epoch_batches, seed_epoch
from ccal.training.front_ends import make_front_ends


@given(pairs=st.integers(2, 300), size=st.integers(2, 120), epoch=st.integers(0, 5))
def test_every_pair_is_seen_and_none_twice_in_a_batch(pairs: int, size: int, epoch: int) -> None:
    batches = epoch_batches(pairs, size, seed=3, stage="train", epoch=epoch)
    assert set(np.concatenate(batches)) == set(range(pairs))
    assert len(batches) == -(-pairs // size)
    for rows in batches:
        assert rows.dtype == np.int64
        assert len(rows) == min(size, pairs) == len(set(rows))
    whole = np.concatenate(batches)[:pairs]
    assert sorted(whole) == list(range(pairs))


def test_order_depends_on_seed_stage_and_epoch_alone() -> None:
    def order(seed: int = 0, stage: str = "train", epoch: int = 1) -> list[int]:
        batches = epoch_batches(50, 20, seed=seed, stage=stage, epoch=epoch)
        return [int(row) for rows in batches for row in rows]

    first = order()
    torch.rand(3), np.random.default_rng().random(3)
    assert order() == first
    assert len({tuple(o) for o in (first, order(seed=1), order(stage="b"), order(epoch=2))}) == 4


def test_the_shuffle_is_the_same_on_every_machine() -> None:
    batches = epoch_batches(7, 4, seed=0, stage="train", epoch=1)
    assert [rows.tolist() for rows in batches] == [[6, 3, 1, 2], [5, 4, 0, 2]]


def test_the_top_up_is_random_over_epochs() -> None:
    extra = [
        tuple(epoch_batches(30, 16, seed=0, stage="train", epoch=epoch)[-1][14:])
        for epoch in range(40)
    ]
    assert len({row for rows in extra for row in rows}) > 20


def test_torch_draws_the_same_in_a_repeated_epoch() -> None:
    draws = []
    for epoch in (1, 2, 1):
        seed_epoch(0, "train", epoch)
        draws.append(torch.rand(4))
    assert torch.equal(draws[0], draws[2])
    assert not torch.equal(draws[0], draws[1])


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


def test_concatenated_pairs_come_in_order() -> None:
    tfidf = TfidfVectoriser(min_count=1).fit(TEXTS)
    whole = PairFeatures(pairs(), {"text": tfidf})
    parts = (PairFeatures(pairs()[part], {"text": tfidf}) for part in ([0, 1], [2, 3, 4, 5]))
    joined = concatenated(*parts)
    assert len(joined) == 6
    assert joined.widths == whole.widths
    for rows in (np.array([5, 0, 1, 3]), np.array([0]), np.array([4]), slice(1, 5), slice(None)):
        for found, expected in zip(joined.batch(rows), whole.batch(rows), strict=True):
            assert np.array_equal(found, expected)


def test_text_without_front_end_and_flat_arrays_are_refused() -> None:
    with pytest.raises(InputError, match="text is text"):
        PairFeatures(pairs(), {})
    flat = Pairs({"a": np.zeros(4), "b": np.zeros((4, 2))})
    with pytest.raises(InputError, match=r"a must be .*\(pairs, height, width\), got \(4,\)"):
        PairFeatures(flat, {})


def test_pictures_keep_their_shapes() -> None:
    rng = np.random.default_rng(0)
    pictures = rng.integers(256, size=(5, 3, 4), dtype=np.uint8)
    features = PairFeatures(Pairs({"a": pictures, "b": rng.normal(size=(5, 2))}), {})
    assert features.shapes == ((3, 4), (2,))
    assert features.widths == (12, 2)
    x, _ = features.batch(np.array([3, 1]))
    assert x.dtype == torch.float32
    assert np.array_equal(x, pictures[[3, 1]])
    assert np.array_equal(features.arrays()[0], pictures.reshape(5, 12))


@pytest.mark.parametrize("text", ["tfidf", "word-cnn"])
def test_training_texts_are_read_once(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = TfidfVectoriser if text == "tfidf" else WordSequences
    read: list[str] = []
    found = kind.words

    def words(self: Any, text: str) -> list[str]:
        read.append(text)
        return found(self, text)

    monkeypatch.setattr(kind, "words", words)
    settings = Settings(method="ccal", text=text, min_count=1, lemmatise=False)  # type: ignore[arg-type]
    front_ends = make_front_ends(settings, pairs())
    fitted = PairFeatures(pairs(), front_ends, fit=True)
    assert read == pairs().column("text")[:]
    again = PairFeatures(pairs(), front_ends)
    for one, other in zip(fitted.arrays(), again.arrays(), strict=True):
        assert np.array_equal(one, other)
