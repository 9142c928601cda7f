from __future__ import annotations

import json
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccal.encoders import build_front_end, front_end_config
from ccal.errors import CcalError, InputError, NotFittedError
from ccal.features import WordSequences, tokenise

TEXTS = ["A small red bird.", "The bird's RED wing", "a wing, a red wing"]


def test_the_vocabulary_is_the_frequent_words_of_the_training_texts() -> None:
    words = WordSequences().fit(iter(TEXTS))
    assert words.vocabulary == ["a", "bird", "bird's", "red", "small", "the", "wing"]
    assert words.size == 9
    words = WordSequences(min_count=3).fit(TEXTS)
    assert words.vocabulary == ["a", "red", "wing"]
    words.transform(["the small bird"] * 5)
    assert words.vocabulary == ["a", "red", "wing"]


def test_words_beyond_the_cut_count_for_the_vocabulary() -> None:
    words = WordSequences(length=2).fit(TEXTS)
    assert "wing" in words.vocabulary
    assert words.transform(["wing wing a"]).tolist() == [[8, 8]]


def test_padding_unknown_and_cut() -> None:
    words = WordSequences(min_count=3).fit(TEXTS)
    a, red, wing = 2, 3, 4
    long = " ".join(["zebra", "a"] * 100_000)
    rows = words.transform(["a blue red wing!", "", " ... ", "zebra zebra", "red " * 30, long])
    assert rows.shape == (6, 30)
    assert rows.dtype == np.int64
    assert rows[0].tolist() == [a, 1, red, wing] + [0] * 26
    assert not rows[1:3].any()
    assert rows[3].tolist() == [1, 1] + [0] * 28
    assert rows[4].tolist() == [red] * 30
    assert rows[5].tolist() == [1, a] * 15
    assert words.transform([]).shape == (0, 30)


@given(
    texts=st.lists(st.lists(st.sampled_from("abcxyz"), max_size=8).map(" ".join), max_size=4),
    length=st.integers(1, 10),
)
def test_numbers_spell_the_text_again(texts: list[str], length: int) -> None:
    words = WordSequences(length=length).fit(["c b a"])
    spelled = [None, "?", *words.vocabulary]
    for text, row in zip(texts, words.transform(texts), strict=True):
        expected = [w if w in "abc" else "?" for w in text.split()][:length]
        assert [spelled[i] for i in row] == expected + [None] * (length - len(expected))


@given(st.text())
def test_any_text_has_numbers_in_range(text: str) -> None:
    words = WordSequences(length=5).fit(["a b c", text])
    row = words.transform([text])[0]
    assert row.min() >= 0
    assert row.max() < words.size
    assert (row > 1).sum() == min(5, len(tokenise(text)))


def test_lemmas() -> None:
    words = WordSequences(lemmatise=True).fit(["dogs run"])
    assert words.vocabulary == ["dog", "run"]
    assert words.transform(["a dog ran"])[0, :4].tolist() == [1, 2, 3, 0]


@pytest.mark.parametrize("lemmas", [False, True])
def test_saved_as_json_and_back(lemmas: bool) -> None:
    one = WordSequences(length=7, min_count=2, lemmatise=lemmas).fit(TEXTS)
    two = build_front_end(json.loads(json.dumps(front_end_config(one))))
    assert isinstance(two, WordSequences)
    assert two.config() == one.config()
    assert np.array_equal(one.transform(TEXTS), two.transform(TEXTS))


def test_a_broken_config_is_refused() -> None:
    config = WordSequences(lemmatise=True).fit(TEXTS).config()
    with pytest.raises(InputError, match="lacks length, vocabulary"):
        WordSequences.from_config(
            **{k: v for k, v in config.items() if k not in ("length", "vocabulary")}
        )
    for vocabulary in ([], ["a", "a"]):
        with pytest.raises(InputError, match="broken"):
            WordSequences.from_config(**{**config, "vocabulary": vocabulary})
    with pytest.warns(UserWarning, match=r"made with simplemma 0\.1, installed is"):
        WordSequences.from_config(**{**config, "simplemma": "0.1"})


def test_wrong_use_is_explained() -> None:
    words = WordSequences(min_count=5)
    for call in (lambda: words.transform(["a"]), words.config, lambda: words.size):
        with pytest.raises(NotFittedError, match="call fit first"):
            call()
    with pytest.raises(InputError, match="got one text; put it in a list"):
        words.fit("a dog")
    with pytest.raises(InputError, match="no word occurs 5 times in the 2 training texts"):
        words.fit(["a dog", "a cat"])
    with pytest.raises(InputError, match=r"text 1 \(from 0\) is a float"):
        WordSequences().fit(TEXTS).transform(["a", float("nan")])  # type: ignore[list-item]
    with pytest.raises(InputError, match="min_count must be a whole number of at least 1"):
        WordSequences(min_count=0)
    with pytest.raises(InputError, match="length must be a whole number of at least 1"):
        WordSequences(length=0)


def test_only_lemmas_need_simplemma(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "simplemma", None)
    with pytest.raises(CcalError, match=r"needs the package simplemma; .*'\.\[text\]'"):
        WordSequences(lemmatise=True).fit(TEXTS)
    assert WordSequences().fit(TEXTS).config()["simplemma"] is None
