"""Tables as lines of text."""

import re
from collections.abc import Collection, Sequence

# Control characters, those that turn the direction of writing, and halves of surrogate pairs.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""Text with escapes for characters that would steer the terminal.

    >>> print(printable("robin\x1b[2J"))
    robin\x1b[2J
    """
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def align(rows: Sequence[Sequence[str]], left: Collection[int]) -> list[str]:
    """Rows of cells as lines with aligned columns: those in `left` flush left, others flush right.

    >>> align([["rank", "id", ""], ["1", "robin", "year=1990"]], left=(1, 2))
    ['rank  id', '   1  robin  year=1990']
    """
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = [str.ljust if number in left else str.rjust for number in range(len(widths))]
    return [
        "  ".join(s(c, w) for s, c, w in zip(sides, row, widths, strict=True)).rstrip()
        for row in rows
    ]
