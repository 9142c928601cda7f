from __future__ import annotations

import json
import math
import sys
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from ccal.errors import CcalError, InputError, NotFittedError
from ccal.features import TfidfVectoriser, lemmatise, tokenise

TEXTS = [
    "Two dogs are running through the snow .",
    "A dog runs; the snow, the snow!",
    "The children's ball is in the water",
    "A child plays with a ball.",
    "...",
]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        (" .,!? ' ''", []),
        ("Don't STOP", ["don't", "stop"]),
        ("it’s 'quoted' rock'n'roll", ["it's", "quoted", "rock'n'roll"]),
        ("snow-covered under_score", ["snow", "covered", "under", "score"]),
        ("cafe\u0301", ["café"]),
        ("Größe Ελλάδα привет", ["größe", "ελλάδα", "привет"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("3.5 m", ["3", "5", "m"]),
        ("a\u00a0b\u2003c🐕d\ne", ["a", "b", "c", "d", "e"]),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert tokenise(text) == words


@given(st.text())
def test_words_are_stable(text: str) -> None:
    words = tokenise(text)
    assert all(word and not any(c.isspace() for c in word) for word in words)
    assert tokenise(" ".join(words)) == words


def test_lemmas() -> None:
    assert lemmatise(["children", "men", "wearing", "is", "xyzzy"]) == [
        "child",
        "man",
        "wear",
        "be",
        "xyzzy",
    ]
    assert lemmatise(["Hunde", "läuft"], "de") == ["hund", "laufen"]
    with pytest.raises(InputError, match="cannot lemmatise language 'tlh'"):
        lemmatise(["Qapla"], "tlh")


@pytest.mark.parametrize("sublinear", [False, True])
@pytest.mark.parametrize("lemmas", [False, True])
@pytest.mark.parametrize("min_count", [1, 2])
def test_equal_to_scikit_learn(sublinear: bool, lemmas: bool, min_count: int) -> None:
    ours = TfidfVectoriser(min_count=min_count, sublinear=sublinear, lemmatise=lemmas).fit(TEXTS)
    theirs = TfidfVectorizer(
        tokenizer=ours.words,
        token_pattern=None,
        lowercase=False,
        sublinear_tf=sublinear,
        vocabulary=ours.vocabulary,
    ).fit(TEXTS)
    np.testing.assert_allclose(ours.idf, theirs.idf_, rtol=1e-12)
    new = [*TEXTS, "a dog and a zebra and a dog", ""]
    result = ours.transform(new)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, theirs.transform(new).toarray(), atol=1e-7)
    if min_count == 1:
        assert ours.vocabulary == sorted(theirs.get_feature_names_out())


@settings(deadline=None, max_examples=50)
@given(
    texts=st.lists(st.lists(st.sampled_from("abcdefg"), max_size=8).map(" ".join), min_size=1),
    min_count=st.integers(1, 3),
    sublinear=st.booleans(),
)
def test_equal_to_the_formula_word_by_word(
    texts: list[str], min_count: int, sublinear: bool
) -> None:
    total = Counter(" ".join(texts).split())
    kept = sorted(w for w in total if total[w] >= min_count)
    vectoriser = TfidfVectoriser(min_count=min_count, sublinear=sublinear, lemmatise=False)
    if not kept:
        with pytest.raises(InputError, match="lower min_count"):
            vectoriser.fit(texts)
        return
    result = vectoriser.fit(texts).transform(texts)
    assert vectoriser.vocabulary == kept
    assert vectoriser.empty_texts == sum(not set(t.split()) & set(kept) for t in texts)
    for text, row in zip(texts, result, strict=True):
        expected = []
        for word in kept:
            count = text.split().count(word)
            tf = (1 + math.log(count) if count else 0) if sublinear else count
            df = sum(word in t.split() for t in texts)
            expected.append(tf * (math.log((1 + len(texts)) / (1 + df)) + 1))
        norm = math.sqrt(sum(v * v for v in expected)) or 1
        np.testing.assert_allclose(row, np.array(expected) / norm, atol=1e-6)


def test_sparse_rows_are_the_rows_of_the_whole() -> None:
    vectoriser = TfidfVectoriser(min_count=1).fit(TEXTS)
    whole, sparse = vectoriser.transform(TEXTS), vectoriser.sparse(iter(TEXTS))
    assert sparse.shape == whole.shape
    for index in (slice(None), slice(1, 3), [2, 0, 2], [], whole.any(1)):
        assert np.array_equal(sparse[index], whole[index])


def test_saved_as_json_and_back() -> None:
    one = TfidfVectoriser(min_count=2, sublinear=True).fit(TEXTS)
    two = TfidfVectoriser.from_config(**json.loads(json.dumps(one.config())))
    assert np.array_equal(one.transform(TEXTS), two.transform(TEXTS))
    assert two.config() == one.config()


def test_a_broken_config_is_refused() -> None:
    config = TfidfVectoriser(min_count=1).fit(TEXTS).config()
    with pytest.raises(InputError, match="lacks idf"):
        TfidfVectoriser.from_config(**{k: v for k, v in config.items() if k != "idf"})
    with pytest.raises(InputError, match="broken"):
        TfidfVectoriser.from_config(**{**config, "idf": config["idf"][1:]})
    with pytest.raises(InputError, match="broken"):
        TfidfVectoriser.from_config(**{**config, "vocabulary": ["a"] * len(config["vocabulary"])})
    with pytest.warns(UserWarning, match=r"made with simplemma 0\.1, installed is"):
        TfidfVectoriser.from_config(**{**config, "simplemma": "0.1"})


def test_wrong_use_is_explained() -> None:
    vectoriser = TfidfVectoriser()
    for call in (lambda: vectoriser.transform(["a"]), vectoriser.config):
        with pytest.raises(NotFittedError, match="call fit first"):
            call()
    with pytest.raises(InputError, match="got one text; put it in a list"):
        vectoriser.fit("a dog")
    with pytest.raises(InputError, match=r"text 1 \(from 0\) is a float"):
        vectoriser.fit(["a", float("nan")])  # type: ignore[list-item]
    with pytest.raises(InputError, match="no word occurs 5 times in the 2 training texts"):
        vectoriser.fit(["a dog", "a cat"])
    with pytest.raises(InputError, match="min_count must be a whole number of at least 1"):
        TfidfVectoriser(min_count=0)


def test_without_simplemma_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "simplemma", None)
    with pytest.raises(CcalError, match=r"needs the package simplemma; .*'\.\[text\]'"):
        TfidfVectoriser().fit(["a dog"])
    assert TfidfVectoriser(min_count=1, lemmatise=False).fit(["a dog"]).vocabulary == ["a", "dog"]


def test_pairs_of_words_are_those_of_scikit_learn() -> None:
    texts = [text for text in TEXTS if text.strip()] * 2
    ours = TfidfVectoriser(min_count=2, pair_count=2, lemmatise=False).fit(texts)
    reference = TfidfVectorizer(
        tokenizer=tokenise, token_pattern=None, lowercase=False, ngram_range=(1, 2)
    ).fit(texts)
    assert ours.vocabulary == sorted(reference.vocabulary_)
    np.testing.assert_allclose(
        ours.transform(texts), reference.transform(texts).toarray(), atol=1e-6
    )
    rare = TfidfVectoriser(min_count=2, pair_count=10**6, lemmatise=False).fit(texts)
    assert rare.vocabulary == [word for word in ours.vocabulary if " " not in word]


def test_pairs_are_kept_with_the_model() -> None:
    first = TfidfVectoriser(min_count=1, pair_count=1, lemmatise=False).fit(["black wing", "wing"])
    config = first.config()
    again = TfidfVectoriser.from_config(**config)
    assert again.pair_count == 1
    np.testing.assert_array_equal(again.transform(["black wing"]), first.transform(["black wing"]))
    # As models were saved before there were pairs.
    del config["pair_count"]
    assert TfidfVectoriser.from_config(**config).pair_count == 0
    with pytest.raises(InputError, match="pair_count must be a whole number of at least 0"):
        TfidfVectoriser(pair_count=-1)
