"""What can go wrong, as exceptions a person can act on."""

import sys
from dataclasses import dataclass, field
from typing import Any, Self


class CcalError(Exception):
    """Base of every error that ccal raises on purpose."""


class InputError(CcalError, ValueError):
    """The data or a parameter is not what the function can work with."""


class NotFittedError(CcalError, RuntimeError):
    """Projections were asked for before any were computed.

    Where scikit-learn is imported, the error is also a `sklearn.exceptions.NotFittedError`, so that
    code written for scikit-learn catches it.
    """

    def __new__(cls, *args: Any) -> Self:
        """An error of both libraries if scikit-learn is imported."""
        sklearn = sys.modules.get("sklearn.exceptions")
        if cls is NotFittedError and sklearn is not None:
            both: type[Self] = type(cls.__name__, (cls, sklearn.NotFittedError), {})
            return both(*args)
        return super().__new__(cls, *args)

    def __reduce__(self) -> tuple[Any, ...]:
        # pickle looks a class up by its name, and would find another one than that of __new__.
        return NotFittedError, self.args


class SmallBatchWarning(UserWarning):
    """There are so few pairs for their dimensions that CCA mostly fits noise."""


@dataclass
class Faults:
    """Faults found among many items: the first `limit` in words, and how many there are.

    >>> faults = Faults(limit=1)
    >>> faults.add("a.jpg: the file is empty.")
    >>> faults.add("b.jpg: file not found.")
    >>> print(faults.listed("2 images cannot be read:"))
    2 images cannot be read:
      a.jpg: the file is empty.
      ... and 1 more
    """

    limit: int = 20
    total: int = 0
    shown: list[str] = field(default_factory=list)

    def add(self, reason: str) -> None:
        """Count a fault, and keep its reason while there is room."""
        self.total += 1
        if len(self.shown) < self.limit:
            self.shown.append(reason)

    def __bool__(self) -> bool:
        return self.total > 0

    def listed(self, head: str) -> str:
        """The head line, a line for each reason that was kept, and the number of the others."""
        lines = [head, *(f"  {reason}" for reason in self.shown)]
        if self.total > len(self.shown):
            lines.append(f"  ... and {self.total - len(self.shown):,} more")
        return "\n".join(lines)
