"""Some items of a collection with their vectors and words: what maps and reasons are made from."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from ccal.features.text import tokenise
from ccal.retrieval.backends.base import Vectors
from ccal.serve.collection import Card

MOST = 5000
"""Items of a sample: more points of a map cannot be told apart."""

_TOP_SHARE, _LEAST_TOP, _MOST_TOP = 0.02, 4, 60
_TERMS, _EXAMPLES = 5, 3
_LIFT, _OFTEN = 1.5, 3
# English words that say little by themselves; in other languages _LIFT alone has to leave them out.
_BLAND = frozenset(
    tokenise(
        "and another are for from has have her him his into its off one onto other out over she "
        "some that the their there they this through very was were what which while who with"
    )
)


class Terms:
    """Words of n texts, to find those that are typical of some of them.

    >>> terms = Terms(["a red bus"] * 4 + ["a dog"] * 4)
    >>> terms.named(np.repeat([0, 1], 4), 2)
    [['bus', 'red'], ['dog']]
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._has_words = np.array([bool(text) for text in texts])
        words: dict[str, int] = {}
        found = [sorted(set(tokenise(text))) for text in texts]
        numbers = [words.setdefault(word, len(words)) for several in found for word in several]
        self._words, self._numbers = list(words), np.array(numbers, np.int64)
        self._texts = np.repeat(np.arange(len(texts)), [len(several) for several in found])

    def scores(self, groups: NDArray[np.int64], count: int) -> NDArray[np.float64]:
        """How typical each word (w,) is of the texts of each group: (w, count).

        `groups` (n,) has the group of each text. The score p log(p / q) is high for a word that a
        large share p of the group has, and a smaller share q of all texts. It is 0 where p is
        less than 1.5 q, as for "the", or where fewer than three texts have the word.
        """
        cells = self._numbers * count + groups[self._texts]
        having = np.bincount(cells, minlength=len(self._words) * count).reshape(-1, count)
        sizes = np.bincount(groups[self._has_words], minlength=count)
        share = having / np.maximum(sizes, 1)
        overall = having.sum(1, keepdims=True) / max(1, int(sizes.sum()))
        lift = share / overall
        typical = (lift >= _LIFT) & (having >= np.minimum(_OFTEN, sizes))
        return np.where(typical, share * np.log(np.maximum(lift, 1e-12)), 0.0)

    def named(self, groups: NDArray[np.int64], count: int, shared: float = 1.0) -> list[list[str]]:
        """The most typical words of each group.

        A word names the group where its score is highest, and those that reach a share of it.
        """
        scores = self.scores(groups, count)
        scores = np.where(scores >= shared * scores.max(1, keepdims=True), scores, 0.0)
        return [self.best(column) for column in scores.T]

    def best(self, scores: NDArray[np.float64]) -> list[str]:
        """The words with the highest scores (w,), down to a quarter of the first.

        Other forms of the same word are left out, and words that say little.
        """
        order = np.argsort(-scores, kind="stable")[: 4 * _TERMS]
        high = order[scores[order] > 0.25 * scores.max(initial=0.0)].tolist()
        return telling([self._words[number] for number in high])[:_TERMS]


def telling(words: Iterable[str]) -> list[str]:
    """The words without those that say little, and without other forms of an earlier one.

    >>> telling(["snow", "the", "snowy", "dog"])
    ['snow', 'dog']
    """
    chosen: list[str] = []
    for word in words:
        bland = word in _BLAND or len(word) < (3 if word.isascii() else 2)
        if not bland and not any(word.startswith(one) or one.startswith(word) for one in chosen):
            chosen.append(word)
    return chosen


@dataclass(frozen=True, eq=False)
class Sample:
    """Cards and vectors (n, d) of n of `total` items; `texts` (n,) are empty where there are none.

    A frozen sample stays the same object until the collection has changed.
    """

    total: int
    cards: Sequence[Card]
    vectors: Vectors
    texts: Sequence[str]

    @cached_property
    def terms(self) -> Terms:
        """The words of the texts."""
        return Terms(self.texts)

    @cached_property
    def rows(self) -> NDArray[np.float64]:
        """The vectors (n, d), each modality centred by itself.

        Modalities lie somewhat apart, and otherwise would only be separated.
        """
        rows = np.asarray(self.vectors, np.float64).copy()
        names = np.array([card.modality for card in self.cards])
        for name in set(names.tolist()):
            rows[names == name] -= rows[names == name].mean(0)
        return rows

    @cached_property
    def ends(self) -> "_Ends":
        """Descriptions of the ends of the dimensions."""
        return _Ends(self)


class _Ends:
    """Describes the ends of the dimensions of a sample, each once."""

    def __init__(self, sample: Sample) -> None:
        self._sample = sample
        self.describe = lru_cache(maxsize=1024)(self._describe)

    def _describe(self, end: int) -> tuple[list[str], list[Card]]:
        """Typical words, and the outermost items, at the end of dimension |end| from 1.

        The end is that of the highest values, or for a negative number that of the lowest. Items
        are pictures if there are any, else those with a text.
        """
        sample = self._sample
        order = np.argsort(-np.sign(end) * sample.rows[:, abs(end) - 1], kind="stable")
        most = int(np.clip(_TOP_SHARE * len(order), _LEAST_TOP, _MOST_TOP))
        outermost = np.zeros(len(order), np.int64)
        outermost[[at for at in order.tolist() if sample.texts[at]][:most]] = 1
        terms = sample.terms.best(sample.terms.scores(outermost, 2)[:, 1])
        cards = [sample.cards[at] for at in order.tolist()]
        pictures = [card for card in cards if "thumbnail" in card.media]
        texts = [card for card in cards if card.text is not None]
        return terms, (pictures or texts or cards)[:_EXAMPLES]
