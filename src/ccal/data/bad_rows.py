"""What was wrong with a table, line by line."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["BadRows"]


@dataclass
class BadRows:
    """The bad rows of a table: the first `limit` with their reasons, and how many there are.

    `unit` says what the numbers count from 1: lines of a text file, or rows of a Parquet file.

    >>> bad = BadRows(Path("pairs.csv"), limit=1)
    >>> bad.add(7, "text is empty")
    >>> bad.add(9, "3 cells, but the header has 2")
    >>> bad.rows = 4000
    >>> print(bad)
    pairs.csv: 2 bad rows of 4,000
      line 7: text is empty
      ... and 1 more
    """

    path: Path
    limit: int = 20
    unit: str = "line"
    rows: int = 0
    total: int = 0
    shown: list[tuple[int, str]] = field(default_factory=list)

    def add(self, number: int, reason: str) -> None:
        """Count a bad row, and keep its reason while there is room."""
        self.total += 1
        if len(self.shown) < self.limit:
            self.shown.append((number, reason))

    def __bool__(self) -> bool:
        return self.total > 0

    def __str__(self) -> str:
        head = f"{self.path}: {self.total:,} bad rows of {self.rows:,}"
        lines = [f"  {self.unit} {number}: {reason}" for number, reason in self.shown]
        if self.total > len(self.shown):
            lines.append(f"  ... and {self.total - len(self.shown):,} more")
        return "\n".join([head, *lines])
