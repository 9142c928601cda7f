"""Whether a text says anything to a model: has it a word that the front end knows?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ccal.errors import InputError

__all__ = ["refuse_unknown", "word_check"]


def word_check(front_end: Any) -> Callable[[str], bool]:
    """Whether a text has a known word; a front end without a vocabulary knows them all.

    >>> from ccal.data import WordSequences
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
    """Refuse a query that would find the same items as any other of its kind.

    >>> refuse_unknown("zzz", "dogs".__eq__)
    Traceback (most recent call last):
    ...
    ccal.errors.InputError: None of these words is known to the model; try others.
    """
    if not any(map(str.isalnum, text)):
        raise InputError("There are no words to search by.")
    if not knows(text):
        raise InputError("None of these words is known to the model; try others.")
