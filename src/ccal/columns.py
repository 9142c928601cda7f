"""Tables as lines of text."""

from collections.abc import Collection, Sequence


def align(rows: Sequence[Sequence[str]], left: Collection[int]) -> list[str]:
    """Rows of cells as lines with aligned columns: those in `left` flush left, others flush right.

    >>> align([["rank", "id", ""], ["1", "robin", "year=1990"]], left=(1, 2))
    ['rank  id', '   1  robin  year=1990']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = [str.ljust if number in left else str.rjust for number in range(len(widths))]
    return [
        "  ".join(s(c, w) for s, c, w in zip(sides, row, widths, strict=True)).rstrip()
        for row in rows
    ]
