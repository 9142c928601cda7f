"""Text as TF-IDF: words weighted by how rare they are in the training texts.

`SparseRows` keeps the matrix without its zeros.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccal.bounds import Whole, check
from ccal.encoders import register_front_end
from ccal.errors import InputError
from ccal.features.text import TextFrontEnd, checked_texts


class SparseRows:
    """A matrix (n, d) by its non-zero values, row by row; indexing gives dense float32 rows.

    With s = slice(offsets[i], offsets[i + 1]), row i has the values `values[s]` in the columns
    `columns[s]`.

    >>> rows = SparseRows(np.array([0, 2, 2, 3]), np.array([0, 3, 1]), np.ones(3, np.float32), 4)
    >>> rows[[2, 0]]
    array([[0., 1., 0., 0.], [1., 0., 0., 1.]], dtype=float32)
    """

    def __init__(
        self,
        offsets: NDArray[np.int64],
        columns: NDArray[np.int64],
        values: NDArray[np.float32],
        d: int,
    ) -> None:
        self.offsets, self.columns, self.values = offsets, columns, values
        self.shape = (len(offsets) - 1, d)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> NDArray[np.float32]:
        rows = np.arange(len(self))[index]
        starts = self.offsets[rows]
        lengths = self.offsets[rows + 1] - starts
        target = np.repeat(np.arange(len(rows)), lengths)
        # Positions of each row's values: from its start onwards.
        positions = np.arange(lengths.sum()) + np.repeat(
            starts - lengths.cumsum() + lengths, lengths
        )
        dense = np.zeros((len(rows), self.shape[1]), dtype=np.float32)
        dense[target, self.columns[positions]] = self.values[positions]
        return dense


@register_front_end("tfidf")
class TfidfVectoriser(TextFrontEnd):
    """TF-IDF rows of length 1 over a vocabulary taken from the training texts only.

    A word stays if it occurs at least `min_count` times in all training texts together (the
    paper: 5 for Flickr30k, 3 for IAPR TC-12). The value of a word before scaling to length 1 is
    `tf * (ln((1 + n) / (1 + df)) + 1)`, with tf its count in the text, or `1 + ln(count)` if
    `sublinear`, and df the number of the n training texts that contain it. Unknown words are
    ignored; a text without a known word gives a row of zeros, counted in `empty_texts`. With
    `pair_count` above 0, two neighbouring words that occur so often together count as one,
    which tells "black wing, white belly" from "white wing, black belly".

    >>> tfidf = TfidfVectoriser(min_count=2).fit(["Two dogs run.", "A dog ran.", "A cat"])
    >>> tfidf.vocabulary
    ['a', 'dog', 'run']
    >>> tfidf.transform(["dogs", "zebra"]), tfidf.empty_texts
    (array([[0., 1., 0.], [0., 0., 0.]], dtype=float32), 1)
    >>> TfidfVectoriser(min_count=2, pair_count=2).fit(["A dog", "A dog ran.", "A cat"]).vocabulary
    ['a', 'a dog', 'dog']
    """

    options = ("min_count", "sublinear", "lemmatise", "language")

    def __init__(
        self,
        *,
        min_count: int = 5,
        sublinear: bool = False,
        lemmatise: bool = True,
        language: str = "en",
        pair_count: int = 0,
    ) -> None:
        super().__init__(min_count=min_count, lemmatise=lemmatise, language=language)
        check("pair_count", pair_count, Whole(at_least=0))
        self.sublinear, self.pair_count = sublinear, pair_count
        self.idf: NDArray[np.float64] = np.empty(0)
        self.empty_texts = 0
        self._column: dict[str, int] = {}

    def transform(self, texts: Iterable[str]) -> NDArray[np.float32]:
        """The dense (n, words) matrix; sets `empty_texts`."""
        return self.sparse(texts)[:]

    def sparse(self, texts: Iterable[str]) -> SparseRows:
        """The (n, words) matrix without its zeros; sets `empty_texts`."""
        self._check_fitted()
        return self._rows(self.words(text) for text in checked_texts(texts))

    def words(self, text: str) -> list[str]:
        """The words of a text as the vocabulary spells them, then the pairs, if wanted."""
        words = super().words(text)
        return words + [" ".join(pair) for pair in pairwise(words)] if self.pair_count else words

    def config(self) -> dict[str, Any]:
        """Everything `from_config` needs, as plain values for JSON."""
        config = {**super().config(), "idf": self.idf.tolist()}
        # Omitted without pairs, so that older models keep their fingerprint.
        return {**config, "pair_count": self.pair_count} if self.pair_count else config

    @classmethod
    def from_config(cls, **config: Any) -> TfidfVectoriser:
        """The vectoriser that `config` described; warns if simplemma has another version.

        >>> one = TfidfVectoriser(min_count=1, lemmatise=False).fit(["a dog", "a cat"])
        >>> two = TfidfVectoriser.from_config(**one.config())
        >>> bool((one.transform(["a cat"]) == two.transform(["a cat"])).all())
        True
        """
        vectoriser = cls._from_options(config, "idf")
        vectoriser.pair_count = config.get("pair_count", 0)
        vocabulary, idf = vectoriser.vocabulary, np.array(config["idf"], dtype=np.float64)
        if idf.shape != (len(vocabulary),):
            raise InputError(
                f"the config of TfidfVectoriser is broken: {len(vocabulary)} words, idf of shape "
                f"{idf.shape}."
            )
        vectoriser._use(vocabulary, idf)
        return vectoriser

    def _least(self, word: str) -> int:
        # A pair of words has a space in it, a word has none.
        return self.pair_count if " " in word else self.min_count

    def _set(self, vocabulary: list[str], documents: list[int], n: int) -> None:
        self._use(vocabulary, np.log((1 + n) / (1 + np.array(documents, dtype=np.float64))) + 1)

    def _use(self, vocabulary: list[str], idf: NDArray[np.float64]) -> None:
        self.vocabulary, self.idf = vocabulary, idf
        self._column = {word: column for column, word in enumerate(vocabulary)}

    def _rows(self, texts: Iterable[list[str]]) -> SparseRows:
        """Rows of length 1, weighted by tf and idf."""
        column = self._column
        columns = [[column[word] for word in words if word in column] for words in texts]
        n, d = len(columns), len(self.idf)
        row = np.repeat(np.arange(n), [len(c) for c in columns])
        flat = np.array([column for c in columns for column in c], dtype=np.int64)
        cells, counts = np.unique(row * d + flat, return_counts=True)
        values = (1 + np.log(counts) if self.sublinear else counts) * self.idf[cells % d]
        norms = np.sqrt(np.bincount(cells // d, weights=values**2, minlength=n))
        self.empty_texts = int((norms == 0).sum())
        offsets = np.searchsorted(cells, np.arange(n + 1) * d)
        return SparseRows(offsets, cells % d, (values / norms[cells // d]).astype(np.float32), d)
