"""What was found: a tune, and where in it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Snippet", "TuneMatch"]


@dataclass(frozen=True)
class TuneMatch:
    """A tune of a library that a query resembles.

    Args:
        tune: its number in the library.
        name: its name.
        source: the file and the number that it came from.
        score: mean cosine along the way; 1 is best, and chance is near 0.
        columns: from where to where on the tune's staff line the query goes, in pixels.
        seconds: from when to when in its sound, at the library's tempo.
        path: (second of the recording or column of the picture, column of the staff, second of the
            sound) for each snippet; none of the three ever falls.
    """

    tune: int
    name: str
    source: str
    score: float
    columns: tuple[float, float]
    seconds: tuple[float, float]
    path: list[tuple[float, float, float]]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Snippet:
    """A place of a tune, and the cosine of its snippet with a query's."""

    tune: int
    column: float
    second: float
    score: float
