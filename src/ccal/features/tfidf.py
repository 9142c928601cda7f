"""Text as TF-IDF: words, lemmas, and their weights over the vocabulary of the training texts.

`SparseRows` keeps the matrix without its zeros; `word_check` tells whether a query has a word that
the vocabulary knows.
"""

from __future__ import annotations

import re
import unicodedata
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccal.bounds import Whole, check
from ccal.encoders import register_front_end
from ccal.errors import InputError, NotFittedError
from ccal.optional import require

__all__ = [
    "SparseRows",
    "TfidfVectoriser",
    "checked_texts",
    "lemmatise",
    "refuse_unknown",
    "simplemma_version",
    "tokenise",
    "warn_of_other_lemmas",
    "word_check",
]


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


class _WordCharacters(dict[int, int]):
    """For `str.translate`: letters, marks and digits stay, all else becomes a space."""

    def __missing__(self, code: int) -> int:
        self[code] = code if unicodedata.category(chr(code))[0] in "LMN" else ord(" ")
        return self[code]


_BLANK_OUT = _WordCharacters({ord("'"): ord("'"), ord("’"): ord("'")})
_WORD = re.compile(r"[^\s']+(?:'[^\s']+)*")


def tokenise(text: str) -> list[str]:
    """Words of letters, marks and digits in lower case; an apostrophe inside a word stays.

    Scripts without spaces, such as Chinese, come out as one word between punctuation marks.

    >>> tokenise("The dog's café: 2 brown-ish DOGS!")
    ['the', "dog's", 'café', '2', 'brown', 'ish', 'dogs']
    """
    return _WORD.findall(unicodedata.normalize("NFC", text.lower()).translate(_BLANK_OUT))


def lemmatise(words: Iterable[str], language: str = "en") -> list[str]:
    """The dictionary form of each word, in lower case; needs `ccal[text]` (simplemma).

    >>> lemmatise(["dogs", "running", "was"])
    ['dog', 'run', 'be']
    """
    simplemma = require("simplemma", extra="text", purpose="Lemmatising")
    try:
        return [simplemma.lemmatize(word, lang=language).lower() for word in words]
    except ValueError as error:
        raise InputError(f"simplemma cannot lemmatise language {language!r}: {error}") from error


@register_front_end("tfidf")
class TfidfVectoriser:
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

    def __init__(
        self,
        *,
        min_count: int = 5,
        sublinear: bool = False,
        lemmatise: bool = True,
        language: str = "en",
        pair_count: int = 0,
    ) -> None:
        check("min_count", min_count, Whole(at_least=1))
        check("pair_count", pair_count, Whole(at_least=0))
        self.min_count = min_count
        self.pair_count = pair_count
        self.sublinear = sublinear
        self.lemmatise = lemmatise
        self.language = language
        self.vocabulary: list[str] = []
        self.idf: NDArray[np.float64] = np.empty(0)
        self.empty_texts = 0
        self._column: dict[str, int] = {}

    def fit(self, texts: Iterable[str]) -> TfidfVectoriser:
        """Learn vocabulary and idf from the training texts, in one pass."""
        self._learn(self.words(text) for text in checked_texts(texts))
        return self

    def fit_sparse(self, texts: Iterable[str]) -> SparseRows:
        """`fit` and `sparse` of the same texts, whose words are found only once."""
        words = [self.words(text) for text in checked_texts(texts)]
        self._learn(words)
        return self._rows(words)

    def _learn(self, texts: Iterable[list[str]]) -> None:
        occurrences: Counter[str] = Counter()
        documents: Counter[str] = Counter()
        n = 0
        for n, words in enumerate(texts, start=1):  # noqa: B007
            occurrences.update(words)
            documents.update(set(words))
        # A pair of words has a space in it, a word has none.
        kept = sorted(
            word
            for word, count in occurrences.items()
            if count >= (self.pair_count if " " in word else self.min_count)
        )
        if not kept:
            raise InputError(
                f"no word occurs {self.min_count} times in the {n} training texts "
                f"({len(occurrences)} different words); lower min_count."
            )
        df = np.array([documents[word] for word in kept], dtype=np.float64)
        self._set(kept, np.log((1 + n) / (1 + df)) + 1)

    def transform(self, texts: Iterable[str]) -> NDArray[np.float32]:
        """The dense (n, words) matrix; sets `empty_texts`."""
        return self.sparse(texts)[:]

    def sparse(self, texts: Iterable[str]) -> SparseRows:
        """The (n, words) matrix without its zeros; sets `empty_texts`."""
        if not self.vocabulary:
            raise NotFittedError("TfidfVectoriser has no vocabulary yet; call fit first.")
        return self._rows(self.words(text) for text in checked_texts(texts))

    def _rows(self, texts: Iterable[list[str]]) -> SparseRows:
        columns = []
        for words in texts:
            known = (self._column.get(word) for word in words)
            columns.append([column for column in known if column is not None])
        return self._weigh(columns)

    def words(self, text: str) -> list[str]:
        """The words of a text as the vocabulary spells them, then the pairs, if wanted."""
        words = tokenise(text)
        words = lemmatise(words, self.language) if self.lemmatise else words
        if not self.pair_count:
            return words
        return words + [" ".join(pair) for pair in pairwise(words)]

    def config(self) -> dict[str, Any]:
        """Everything `from_config` needs, as plain values for JSON."""
        if not self.vocabulary:
            raise NotFittedError("TfidfVectoriser has no vocabulary yet; call fit first.")
        # Omitted without pairs, so that older models keep their fingerprint.
        pairs = {"pair_count": self.pair_count} if self.pair_count else {}
        return {
            "min_count": self.min_count,
            "sublinear": self.sublinear,
            "lemmatise": self.lemmatise,
            "language": self.language,
            **pairs,
            "simplemma": simplemma_version() if self.lemmatise else None,
            "vocabulary": list(self.vocabulary),
            "idf": self.idf.tolist(),
        }

    @classmethod
    def from_config(cls, **config: Any) -> TfidfVectoriser:
        """The vectoriser that `config` described; warns if simplemma has another version.

        >>> one = TfidfVectoriser(min_count=1, lemmatise=False).fit(["a dog", "a cat"])
        >>> two = TfidfVectoriser.from_config(**one.config())
        >>> bool((one.transform(["a cat"]) == two.transform(["a cat"])).all())
        True
        """
        options = ("min_count", "sublinear", "lemmatise", "language")
        missing = [k for k in (*options, "simplemma", "vocabulary", "idf") if k not in config]
        if missing:
            raise InputError(f"the TF-IDF config lacks {', '.join(missing)}.")
        # Models saved before version 0.1 lack pair_count.
        given = {name: config[name] for name in options}
        vectoriser = cls(**given, pair_count=config.get("pair_count", 0))
        vocabulary, idf = list(config["vocabulary"]), np.array(config["idf"], dtype=np.float64)
        if idf.shape != (len(vocabulary),) or len(set(vocabulary)) != len(vocabulary):
            raise InputError(
                f"the TF-IDF config is broken: {len(vocabulary)} words "
                f"({len(set(vocabulary))} distinct), idf of shape {idf.shape}."
            )
        if vectoriser.lemmatise:
            warn_of_other_lemmas(config["simplemma"])
        vectoriser._set(vocabulary, idf)
        return vectoriser

    def _set(self, vocabulary: list[str], idf: NDArray[np.float64]) -> None:
        self.vocabulary, self.idf = vocabulary, idf
        self._column = {word: column for column, word in enumerate(vocabulary)}

    def _weigh(self, columns: list[list[int]]) -> SparseRows:
        """Rows of length 1 from the vocabulary columns of each text's words."""
        n, d = len(columns), len(self.idf)
        row = np.repeat(np.arange(n), [len(c) for c in columns])
        flat = np.array([column for c in columns for column in c], dtype=np.int64)
        cells, counts = np.unique(row * d + flat, return_counts=True)
        values = (1 + np.log(counts) if self.sublinear else counts) * self.idf[cells % d]
        norms = np.sqrt(np.bincount(cells // d, weights=values**2, minlength=n))
        self.empty_texts = int((norms == 0).sum())
        offsets = np.searchsorted(cells, np.arange(n + 1) * d)
        return SparseRows(offsets, cells % d, (values / norms[cells // d]).astype(np.float32), d)


def checked_texts(texts: Iterable[str]) -> Iterator[str]:
    """Yield the texts; refuse what is not text."""
    if isinstance(texts, str):
        raise InputError("expected a list of texts, got one text; put it in a list.")
    for position, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"text {position} (from 0) is a {type(text).__name__}, not a text.")
        yield text


def warn_of_other_lemmas(version: str) -> None:
    """Warn if a vocabulary was made with another version of simplemma than is installed."""
    if simplemma_version() != version:
        warnings.warn(
            f"The vocabulary was made with simplemma {version}, installed is "
            f"{simplemma_version()}; some words may get another lemma.",
            UserWarning,
            stacklevel=3,
        )


def simplemma_version() -> str:
    """The version of the installed lemmatiser; lemmas depend on its dictionary."""
    simplemma = require("simplemma", extra="text", purpose="Lemmatising")
    return str(simplemma.__version__)


def word_check(front_end: Any) -> Callable[[str], bool]:
    """Whether a text has a known word; a front end without a vocabulary knows them all.

    >>> from ccal.features import WordSequences
    >>> knows = word_check(WordSequences().fit(["two dogs"]))
    >>> knows("Dogs"), knows("cats")
    (True, False)
    """
    vocabulary, words = getattr(front_end, "vocabulary", None), getattr(front_end, "words", None)
    if vocabulary is None or words is None:
        return lambda text: True
    known = frozenset(vocabulary)
    return lambda text: not known.isdisjoint(words(text))


def refuse_unknown(text: str, knows: Callable[[str], bool]) -> None:
    """Refuse a query without a known word: its vector is zero, so every item would score 0.

    >>> refuse_unknown("zzz", "dogs".__eq__)
    Traceback (most recent call last):
    ...
    ccal.errors.InputError: None of these words is known to the model; try others.
    """
    if not any(map(str.isalnum, text)):
        raise InputError("There are no words to search by.")
    if not knows(text):
        raise InputError("None of these words is known to the model; try others.")
