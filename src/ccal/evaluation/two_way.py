"""Ranks in both directions from one pass over the scores."""

from __future__ import annotations

from math import inf
from typing import Literal

import torch
from torch import Tensor

from ccal.errors import InputError
from ccal.evaluation.inputs import Array, group_rows, unit_pair
from ccal.ranks import rounding

__all__ = ["Ties", "two_way_ranks"]

Ties = Literal["optimistic", "pessimistic"]

# 4 MB of scores, and as much for comparisons with them, stay in the cache.
_ROWS, _COLUMNS = 512, 2048


def two_way_ranks(
    x: Array,
    y: Array,
    *,
    groups: Array | None = None,
    ties: Ties = "optimistic",
    block: tuple[int, int] = (_ROWS, _COLUMNS),
) -> tuple[Tensor, Tensor]:
    """Ranks x -> y (n,) and y -> x (m,), int64, by cosine; 1 is best.

    `x` is (n, k) and `y` (m, k); `groups` (m,) names the row of x that each row of y belongs to
    (None: row i to row i), as with five captions an image. A row of x is ranked by the best of its
    rows of y, with the others left out; a row of y by its one row of x (the VSE protocol).

    A rank is 1 + the number of wrong candidates that score better. Scores closer than 8 units of
    rounding (1e-6 in float32, 2e-15 in float64; more if k is above 64, see `ccal.ranks.rounding`)
    tie: "optimistic" ties favour the right candidate, "pessimistic" ones go against it. Scores are
    made and counted in blocks of `block` rows and columns, so memory is O(n + m).

    >>> x = torch.eye(3)
    >>> two_way_ranks(x, x.repeat(2, 1), groups=torch.tensor([0, 1, 2, 1, 2, 0]))
    (tensor([1, 1, 1]), tensor([1, 1, 1, 2, 2, 2]))
    """
    if ties not in ("optimistic", "pessimistic"):
        raise InputError(f"ties must be 'optimistic' or 'pessimistic', got {ties!r}.")
    if min(block) < 1:
        raise InputError(f"block must be at least (1, 1), got {block}.")
    queries, candidates = unit_pair(x, y)
    rows = group_rows(groups, queries, candidates)
    # With y in the order of x, the right candidates of a block of rows are a range of columns.
    order = rows.argsort(stable=True)
    rows, candidates = rows[order], candidates[order]
    right = torch.cat(
        [
            (queries[part] * candidates[start : start + len(part)]).sum(1)
            for start, part in _parts(rows, 8192)
        ]
    )
    best = right.new_full((len(queries),), -inf).scatter_reduce(0, rows, right, "amax")
    tolerance = rounding(queries) * (1 if ties == "optimistic" else -1)
    better_y, better_x = _count_better(
        queries, candidates, rows, best + tolerance, right + tolerance, block
    )
    y_ranks = torch.empty_like(better_x)
    y_ranks[order] = better_x + 1
    return better_y + 1, y_ranks


def _parts(tensor: Tensor, size: int) -> list[tuple[int, Tensor]]:
    return [(start, tensor[start : start + size]) for start in range(0, len(tensor), size)]


def _count_better(
    x: Tensor, y: Tensor, rows: Tensor, above_x: Tensor, above_y: Tensor, block: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    """How many wrong scores of each row are above `above_x` (n,), of each column `above_y` (m,).

    `rows` (m,), ascending, is the right row of each column.
    """
    n, m = len(x), len(y)
    height, width = min(block[0], n), min(block[1], m)
    by_row = torch.zeros(n, dtype=torch.int64, device=x.device)
    by_column = torch.zeros(m, dtype=torch.int64, device=x.device)
    # Comparisons go to floats: into booleans they take five times as long, and sums of those too.
    buffer, spare = x.new_empty(height * width), x.new_empty(height * width)
    starts = torch.arange(0, n + height, height, device=x.device)
    bounds = torch.searchsorted(rows, starts).tolist()
    for left in range(0, m, width):
        columns = y[left : left + width]
        c = len(columns)
        for index, top in enumerate(range(0, n, height)):
            part = x[top : top + height]
            r = len(part)
            scores = torch.mm(part, columns.mT, out=buffer[: r * c].view(r, c))
            # Right candidates never count, whatever the rounding: none can outrank itself.
            first, last = max(bounds[index], left), min(bounds[index + 1], left + c)
            if first < last:
                here = torch.arange(first - left, last - left, device=x.device)
                scores[rows[first:last] - top, here] = -inf
            better = spare[: r * c].view(r, c)
            torch.gt(scores, above_x[top : top + r, None], out=better)
            by_row[top : top + r] += better.sum(1).long()
            torch.gt(scores, above_y[left : left + c], out=better)
            by_column[left : left + c] += better.sum(0).long()
    return by_row, by_column
