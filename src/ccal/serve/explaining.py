"""Why a result matches: shares of its score by canonical dimension, and by word of the query."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ccal.cca import CCALayer
from ccal.model import DualEncoder
from ccal.retrieval.backends.base import Vectors

__all__ = ["Word", "shares", "split_words", "without", "word_weights"]

_LEADING = 8
# A query of more words is one to read, not to look at word by word.
_MOST_WORDS = 40


@dataclass(frozen=True)
class Word:
    """A word of a query, from its first character to before its last; known to the model or not."""

    word: str
    start: int
    end: int
    known: bool


def split_words(text: str, knows: Callable[[str], bool]) -> list[Word]:
    """The words of a text with their places.

    >>> split_words("Zwei dogs", "dogs".__eq__)[1]
    Word(word='dogs', start=5, end=9, known=True)
    """
    words, start = [], None
    for place, char in enumerate(text + " "):
        inside = unicodedata.category(char)[0] in "LMN" or (
            # An apostrophe joins what stands on both its sides.
            char in "'’" and start is not None and text[place + 1 : place + 2].isalnum()
        )
        if inside and start is None:
            start = place
        elif not inside and start is not None:
            word = text[start:place]
            words.append(Word(word, start, place, knows(word)))
            start = None
    return words


def without(text: str, words: Sequence[Word]) -> list[str]:
    """The text once without each of its words, of which only so many are looked at."""
    return [text[: word.start] + text[word.end :] for word in words[:_MOST_WORDS]]


def word_weights(words: Sequence[Word], lost: Sequence[float]) -> list[dict[str, Any]]:
    """Words with what the score loses if they are left out; None for those not looked at."""
    weights = [float(value) for value in lost] + [None] * (len(words) - len(lost))
    return [
        {**word.__dict__, "weight": weight} for word, weight in zip(words, weights, strict=True)
    ]


def shares(model: DualEncoder | None, query: Vectors, found: Vectors) -> list[dict[str, Any]]:
    """Where the cosine of a query (d,) with each of (n, d) comes from.

    The product of two unit vectors, dimension by dimension, sums to their cosine. The largest
    shares are named, the others summed. What corrects for hubs stands in the last four columns.
    """
    products = found.astype(np.float64) * query.astype(np.float64)
    hubs = 4 if model is not None and model.hubs is not None else 0
    canonical = products[:, : products.shape[1] - hubs]
    correlations = _correlations(model)
    explained = []
    for row, whole in zip(canonical, products, strict=True):
        leading = np.argsort(-np.abs(row), kind="stable")[:_LEADING].tolist()
        explained.append(
            {
                "dimensions": [
                    {
                        "dimension": place + 1,
                        "contribution": float(row[place]),
                        "correlation": correlations[place] if correlations else None,
                    }
                    for place in leading
                ],
                "rest": float(row.sum() - row[leading].sum()),
                "correction": float(whole[len(row) :].sum()) if hubs else None,
                "words": None,
            }
        )
    return explained


def _correlations(model: DualEncoder | None) -> list[float | None]:
    """Of the training pairs, by dimension; none if the model does not end in CCA."""
    if model is None or not isinstance(model.projection, CCALayer):
        return []
    values = model.projection.correlations.tolist()
    return [value if np.isfinite(value) else None for value in values]
