"""Bounds of arguments: a rule for each, and one message for all.

>>> check("margin", -1, Number(at_least=0))
Traceback (most recent call last):
ccal.errors.InputError: margin must be a finite number of at least 0, got margin=-1.
"""

import difflib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from math import inf, isfinite
from numbers import Integral, Real
from typing import Any

from ccal.errors import InputError


@dataclass(frozen=True)
class Number:
    """A finite number within bounds; NumPy's numbers count, booleans do not."""

    at_least: float = -inf
    above: float = -inf
    at_most: float = inf
    below: float = inf

    def allows(self, value: object) -> bool:
        """Whether the value keeps the rule."""
        return (
            isinstance(value, Real)
            and not isinstance(value, bool)
            and isfinite(number := _float(value))
            and self.at_least <= number <= self.at_most
            and self.above < number < self.below
        )

    def __str__(self) -> str:
        bounds = {
            "of at least": self.at_least,
            "greater than": self.above,
            "of at most": self.at_most,
            "below": self.below,
        }
        words = " and ".join(
            f"{word} {bound:g}" for word, bound in bounds.items() if isfinite(bound)
        )
        return f"{self._kind} {words}".rstrip()

    @property
    def _kind(self) -> str:
        return "a finite number"


def _float(value: Real) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number of more than 308 digits
        return inf


@dataclass(frozen=True)
class Whole(Number):
    """A whole number within bounds."""

    def allows(self, value: object) -> bool:
        """Whether the value keeps the rule."""
        return isinstance(value, Integral) and super().allows(value)

    @property
    def _kind(self) -> str:
        return "a whole number"


class Options:
    """One of a few values, such as names or None."""

    def __init__(self, *values: object) -> None:
        self.values = values

    def allows(self, value: object) -> bool:
        """Whether the value keeps the rule; 1 is not True, and an array equals nothing."""
        return any(type(value) is type(v) and value == v for v in self.values)

    def __str__(self) -> str:
        names = [repr(value) for value in self.values]
        return names[0] if len(names) == 1 else f"one of {', '.join(names)}"


class Text:
    """Text that is not empty."""

    def allows(self, value: object) -> bool:
        """Whether the value keeps the rule."""
        return isinstance(value, str) and value != ""

    def __str__(self) -> str:
        return "text"


Rule = Number | Options | Text


def check(name: str, value: Any, *rules: Rule) -> None:
    """Refuse a value that keeps none of the rules, naming the argument and what it may be.

    >>> check("ridge", "auto", Options("auto"), Number(at_least=0))
    """
    if not any(rule.allows(value) for rule in rules):
        expected = " or ".join(map(str, rules))
        raise InputError(f"{name} must be {expected}, got {name}={value!r}.")


def check_all(table: Mapping[str, Rule | tuple[Rule, ...]], values: Mapping[str, Any]) -> None:
    """Check every argument that the table names."""
    for name, rules in table.items():
        check(name, values[name], *(rules if isinstance(rules, tuple) else (rules,)))


def check_names(given: Iterable[str], known: Collection[str], what: str) -> None:
    """Refuse a name that is not known, with the one that was probably meant.

    >>> check_names(["vald"], ["valid", "test"], "data option")
    Traceback (most recent call last):
    ccal.errors.InputError: There is no data option 'vald'; did you mean 'valid'?
    """
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}."
            raise InputError(f"There is no {what} {name!r}; {hint}")
