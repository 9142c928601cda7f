"""Texts as sequences of word numbers, for towers that read words in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccal.bounds import Whole, check
from ccal.encoders import register_front_end
from ccal.errors import InputError, NotFittedError
from ccal.features.tfidf import (
    checked_texts,
    lemmatise,
    simplemma_version,
    tokenise,
    warn_of_other_lemmas,
)

__all__ = ["WordSequences"]

_UNKNOWN, _FIRST_WORD = 1, 2
_OPTIONS = ("length", "min_count", "lemmatise", "language")


@register_front_end("words")
class WordSequences:
    """The first `length` words of a text as numbers; 0 is padding at the end, 1 an unknown word.

    The vocabulary is the words that occur at least `min_count` times in all training texts
    together, in alphabetical order; the first of them has number 2. An unknown word keeps its
    place in the sequence. The paper reads 30 words.

    >>> words = WordSequences(length=4).fit(["A red bird.", "a bird"])
    >>> words.vocabulary, words.size
    (['a', 'bird', 'red'], 5)
    >>> words.transform(["a blue bird", "", "bird, bird, red bird, red"])
    array([[2, 1, 3, 0],
           [0, 0, 0, 0],
           [3, 3, 4, 3]])
    """

    def __init__(
        self,
        *,
        length: int = 30,
        min_count: int = 1,
        lemmatise: bool = False,
        language: str = "en",
    ) -> None:
        check("length", length, Whole(at_least=1))
        check("min_count", min_count, Whole(at_least=1))
        self.length = length
        self.min_count = min_count
        self.lemmatise = lemmatise
        self.language = language
        self.vocabulary: list[str] = []
        self._number: dict[str, int] = {}

    @property
    def size(self) -> int:
        """How many numbers there are: the words of the vocabulary, padding and unknown."""
        self._check_fitted()
        return len(self.vocabulary) + _FIRST_WORD

    def fit(self, texts: Iterable[str]) -> WordSequences:
        """Learn the vocabulary from the training texts, in one pass.

        All their words count, also those that `transform` would cut off.
        """
        self._learn(self.words(text) for text in checked_texts(texts))
        return self

    def fit_transform(self, texts: Iterable[str]) -> NDArray[np.int64]:
        """`fit` and `transform` of the same texts, whose words are found only once."""
        words = [self.words(text) for text in checked_texts(texts)]
        self._learn(words)
        return self._rows(words)

    def _learn(self, texts: Iterable[list[str]]) -> None:
        occurrences: Counter[str] = Counter()
        n = 0
        for n, words in enumerate(texts, start=1):  # noqa: B007
            occurrences.update(words)
        kept = sorted(w for w, count in occurrences.items() if count >= self.min_count)
        if not kept:
            raise InputError(
                f"no word occurs {self.min_count} times in the {n} training texts "
                f"({len(occurrences)} different words); lower min_count."
            )
        self._set(kept)

    def transform(self, texts: Iterable[str]) -> NDArray[np.int64]:
        """Word numbers (n, length) of n texts."""
        self._check_fitted()
        return self._rows(self.words(text) for text in checked_texts(texts))

    def _rows(self, texts: Iterable[list[str]]) -> NDArray[np.int64]:
        rows = []
        for words in texts:
            row = [self._number.get(w, _UNKNOWN) for w in words[: self.length]]
            rows.append(row + [0] * (self.length - len(row)))
        return np.array(rows, dtype=np.int64).reshape(-1, self.length)

    def words(self, text: str) -> list[str]:
        """The words of a text as the vocabulary spells them."""
        words = tokenise(text)
        return lemmatise(words, self.language) if self.lemmatise else words

    def config(self) -> dict[str, Any]:
        """Everything `from_config` needs, as plain values for JSON."""
        self._check_fitted()
        return {
            **{name: getattr(self, name) for name in _OPTIONS},
            "simplemma": simplemma_version() if self.lemmatise else None,
            "vocabulary": list(self.vocabulary),
        }

    @classmethod
    def from_config(cls, **config: Any) -> WordSequences:
        """The front end that `config` described; warns if simplemma has another version.

        >>> one = WordSequences(length=3).fit(["a dog", "a cat"])
        >>> WordSequences.from_config(**one.config()).transform(["a cat"])
        array([[2, 3, 0]])
        """
        missing = [k for k in (*_OPTIONS, "simplemma", "vocabulary") if k not in config]
        if missing:
            raise InputError(f"the config of the words lacks {', '.join(missing)}.")
        words = cls(**{name: config[name] for name in _OPTIONS})
        vocabulary = list(config["vocabulary"])
        if not vocabulary or len(set(vocabulary)) != len(vocabulary):
            raise InputError(
                f"the config of the words is broken: {len(vocabulary)} words "
                f"({len(set(vocabulary))} distinct)."
            )
        if words.lemmatise:
            warn_of_other_lemmas(config["simplemma"])
        words._set(vocabulary)
        return words

    def _set(self, vocabulary: list[str]) -> None:
        self.vocabulary = vocabulary
        self._number = {word: number for number, word in enumerate(vocabulary, _FIRST_WORD)}

    def _check_fitted(self) -> None:
        if not self.vocabulary:
            raise NotFittedError("WordSequences has no vocabulary yet; call fit first.")
