"""Text for people: printable, cut to a length, in aligned columns."""

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


def is_text(text: str) -> bool:
    r"""Whether files and databases can keep it: no NUL, no half of a surrogate pair.

    >>> is_text("robin"), is_text("\ud800")
    (True, False)
    """
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


def short(text: str, length: int) -> str:
    """A text cut to a length.

    >>> short("two dogs run", 8)
    'two dog…'
    """
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def align(rows: Sequence[Sequence[str]], left: Collection[int], *, indent: int = 0) -> list[str]:
    """Rows of cells as lines with aligned columns: those in `left` flush left, others flush right.

    >>> align([["rank", "id", ""], ["1", "robin", "year=1990"]], left=(1, 2))
    ['rank  id', '   1  robin  year=1990']
    """
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = [str.ljust if number in left else str.rjust for number in range(len(widths))]
    lines = ("  ".join(s(c, w) for s, c, w in zip(sides, r, widths, strict=True)) for r in rows)
    return [" " * indent + line.rstrip() for line in lines]
