"""Texts as sequences of word numbers, for towers that read words in order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccal.bounds import Whole, check
from ccal.encoders import register_front_end
from ccal.features.text import TextFrontEnd, checked_texts

_UNKNOWN, _FIRST_WORD = 1, 2


@register_front_end("words")
class WordSequences(TextFrontEnd):
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

    options = ("length", "min_count", "lemmatise", "language")

    def __init__(
        self, *, length: int = 30, min_count: int = 1, lemmatise: bool = False, language: str = "en"
    ) -> None:
        super().__init__(min_count=min_count, lemmatise=lemmatise, language=language)
        check("length", length, Whole(at_least=1))
        self.length = length
        self._number: dict[str, int] = {}

    @property
    def size(self) -> int:
        """How many numbers there are: the words of the vocabulary, padding and unknown."""
        self._check_fitted()
        return len(self.vocabulary) + _FIRST_WORD

    def transform(self, texts: Iterable[str]) -> NDArray[np.int64]:
        """Word numbers (n, length) of n texts."""
        self._check_fitted()
        return self._rows(self.words(text) for text in checked_texts(texts))

    @classmethod
    def from_config(cls, **config: Any) -> WordSequences:
        """The front end that `config` described; warns if simplemma has another version.

        >>> one = WordSequences(length=3).fit(["a dog", "a cat"])
        >>> WordSequences.from_config(**one.config()).transform(["a cat"])
        array([[2, 3, 0]])
        """
        words = cls._from_options(config)
        words._set(words.vocabulary)
        return words

    def _set(self, vocabulary: list[str], documents: object = None, n: int = 0) -> None:
        self.vocabulary = vocabulary
        self._number = {word: number for number, word in enumerate(vocabulary, _FIRST_WORD)}

    def _rows(self, texts: Iterable[list[str]]) -> NDArray[np.int64]:
        rows = []
        for words in texts:
            row = [self._number.get(w, _UNKNOWN) for w in words[: self.length]]
            rows.append(row + [0] * (self.length - len(row)))
        return np.array(rows, dtype=np.int64).reshape(-1, self.length)
