"""What the text front ends share: words, lemmas, and a vocabulary of the training texts."""

import re
import unicodedata
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from importlib import import_module
from typing import Any, ClassVar, Self

from ccal.bounds import Whole, check
from ccal.errors import InputError, NotFittedError
from ccal.optional import require


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
    """The dictionary form of each word, in lower case; needs the extra `text` (simplemma).

    >>> lemmatise(["dogs", "running", "was"])
    ['dog', 'run', 'be']
    """
    require("simplemma", extra="text", purpose="Lemmatising")
    try:
        return [_lemma(word, language) for word in words]
    except ValueError as error:
        raise InputError(f"simplemma cannot lemmatise language {language!r}: {error}") from error


@lru_cache(maxsize=1 << 16)
def _lemma(word: str, language: str) -> str:
    lemma: str = import_module("simplemma").lemmatize(word, lang=language)
    return lemma.lower()


class TextFrontEnd(ABC):
    """Words of a text, lemmatised if wanted, and a vocabulary of those that occur often enough.

    A subclass names its constructor's arguments in `options`, in the order of `config`.
    """

    options: ClassVar[tuple[str, ...]] = ("min_count", "lemmatise", "language")

    def __init__(self, *, min_count: int, lemmatise: bool, language: str) -> None:
        check("min_count", min_count, Whole(at_least=1))
        self.min_count = min_count
        self.lemmatise = lemmatise
        self.language = language
        self.vocabulary: list[str] = []

    def fit(self, texts: Iterable[str]) -> Self:
        """Learn the vocabulary from the training texts, in one pass; all their words count."""
        self._learn(self.words(text) for text in checked_texts(texts))
        return self

    def fit_rows(self, texts: Iterable[str]) -> Any:
        """`fit`, and the rows of the same texts, whose words are found only once."""
        words = [self.words(text) for text in checked_texts(texts)]
        self._learn(words)
        return self._rows(words)

    def words(self, text: str) -> list[str]:
        """The words of a text as the vocabulary spells them."""
        words = tokenise(text)
        return lemmatise(words, self.language) if self.lemmatise else words

    def config(self) -> dict[str, Any]:
        """Everything `from_config` needs, as plain values for JSON."""
        self._check_fitted()
        return {
            **{name: getattr(self, name) for name in self.options},
            "simplemma": _simplemma_version() if self.lemmatise else None,
            "vocabulary": list(self.vocabulary),
        }

    @classmethod
    def _from_options(cls, config: dict[str, Any], *needed: str) -> Self:
        """A front end with the options and the vocabulary of a config, which is checked first."""
        needed = (*cls.options, "simplemma", "vocabulary", *needed)
        if missing := [name for name in needed if name not in config]:
            raise InputError(f"the config of {cls.__name__} lacks {', '.join(missing)}.")
        vocabulary = list(config["vocabulary"])
        if not vocabulary or len(set(vocabulary)) != len(vocabulary):
            raise InputError(
                f"the config of {cls.__name__} is broken: {len(vocabulary)} words "
                f"({len(set(vocabulary))} distinct)."
            )
        front_end = cls(**{name: config[name] for name in cls.options})
        if front_end.lemmatise and config["simplemma"] != _simplemma_version():
            warnings.warn(
                f"The vocabulary was made with simplemma {config['simplemma']}, installed is "
                f"{_simplemma_version()}; some words may get another lemma.",
                UserWarning,
                stacklevel=3,
            )
        front_end.vocabulary = vocabulary
        return front_end

    def _learn(self, texts: Iterable[list[str]]) -> None:
        """Keep the words that occur often enough, in alphabetical order."""
        occurrences: Counter[str] = Counter()
        documents: Counter[str] = Counter()
        n = 0
        for n, words in enumerate(texts, start=1):  # noqa: B007
            occurrences.update(words)
            documents.update(set(words))
        kept = sorted(word for word, count in occurrences.items() if count >= self._least(word))
        if not kept:
            raise InputError(
                f"no word occurs {self.min_count} times in the {n} training texts "
                f"({len(occurrences)} different words); lower min_count."
            )
        self._set(kept, [documents[word] for word in kept], n)

    def _least(self, word: str) -> int:
        """How often a word must occur to be in the vocabulary."""
        return self.min_count

    @abstractmethod
    def _set(self, vocabulary: list[str], documents: list[int], n: int) -> None:
        """Take a vocabulary; `documents` counts the n training texts that contain each word."""

    @abstractmethod
    def _rows(self, texts: Iterable[list[str]]) -> Any:
        """Rows of texts, given by their words."""

    def _check_fitted(self) -> None:
        if not self.vocabulary:
            raise NotFittedError(f"{type(self).__name__} has no vocabulary yet; call fit first.")


def checked_texts(texts: Iterable[str]) -> Iterator[str]:
    """Yield the texts; refuse what is not text."""
    if isinstance(texts, str):
        raise InputError("expected a list of texts, got one text; put it in a list.")
    for position, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"text {position} (from 0) is a {type(text).__name__}, not a text.")
        yield text


def _simplemma_version() -> str:
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
