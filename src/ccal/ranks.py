"""Unit vectors, and the rank of each query's counterpart among all candidates."""

import math
from math import inf

import torch
from torch import Tensor
from torch.nn import functional

from ccal.errors import InputError

SHORTEST = 1e-12
"""`inverse_norms` takes shorter vectors for zero: cosine 0 with everything, gradient 0."""

BLOCK = (512, 2048)
"""Rows and columns of scores made at a time: 4 MB, which stay in the cache."""

_SCORES_AT_ONCE = 1 << 21


def counterpart_ranks(
    x: Tensor, y: Tensor, *, pessimistic: bool = False, block: tuple[int, int] = BLOCK
) -> tuple[Tensor, Tensor]:
    """Ranks (n,) of `y[i]` for the query `x[i]`, and of `x[i]` for `y[i]`, by cosine; 1 is best.

    `x` and `y` are (n, k). A rank is 1 + the number of candidates better than the counterpart by
    more than `rounding`, so ties favour the counterpart; `pessimistic` counts every other candidate
    that ties as better, so that embeddings which collapse to one point rank last instead of first.
    A zero row has cosine 0 with everything.

    >>> x = torch.eye(3)
    >>> counterpart_ranks(x, x)
    (tensor([1, 1, 1]), tensor([1, 1, 1]))
    >>> counterpart_ranks(x, x.roll(1, 0), pessimistic=True)[0]
    tensor([3, 3, 3])
    """
    if x.ndim != 2 or x.shape != y.shape or not x.numel():
        raise InputError(
            "x and y must be pairs of embeddings, both of shape (n, k) with n and k of at least 1, "
            f"got {tuple(x.shape)} and {tuple(y.shape)}."
        )
    dtype = torch.promote_types(x.dtype, y.dtype)
    queries, candidates = unit_rows(x.to(dtype), "x"), unit_rows(y.to(dtype), "y")
    rows = torch.arange(len(x), device=x.device)
    return unit_ranks(queries, candidates, rows, pessimistic=pessimistic, block=block)


def mean_reciprocal_ranks(
    x: Tensor, y: Tensor, *, pessimistic: bool = False
) -> tuple[float, float]:
    """Mean of 1 / rank, between 0 and 1, for x -> y and for y -> x; see `counterpart_ranks`.

    >>> x = torch.eye(2)
    >>> mean_reciprocal_ranks(x, x), mean_reciprocal_ranks(x, x.flip(0))
    ((1.0, 1.0), (0.5, 0.5))
    """
    forward, backward = counterpart_ranks(x, y, pessimistic=pessimistic)
    return forward.double().reciprocal().mean().item(), backward.double().reciprocal().mean().item()


def weighted_reciprocal_ranks(x: Tensor, y: Tensor, weights: Tensor) -> list[float]:
    """Pessimistic mean of 1 / rank over both directions, with each of the weights (p, k) of axes.

    `x` and `y` are (n, k). Small score matrices are made for several weights at once, which takes a
    fifth of the time of `mean_reciprocal_ranks` for each. Memory is O(n^2).

    >>> x = torch.tensor([[1.0, 1.0], [1.0, -1.0]])
    >>> weighted_reciprocal_ranks(x, x, torch.tensor([[1.0, 1.0], [1.0, 0.0]]))
    [1.0, 0.5]
    """
    found: list[float] = []
    for some in weights.split(max(1, _SCORES_AT_ONCE // len(x) ** 2)):
        a, b = (functional.normalize(view * some[:, None], dim=2) for view in (x, y))
        scores = a @ b.mT
        least = scores.diagonal(dim1=1, dim2=2) - rounding(a[0])
        forward = (scores >= least.unsqueeze(2)).sum(2).double().reciprocal().mean(1)
        backward = (scores >= least.unsqueeze(1)).sum(1).double().reciprocal().mean(1)
        found += ((forward + backward) / 2).tolist()
    return found


def unit_ranks(
    x: Tensor, y: Tensor, rows: Tensor, *, pessimistic: bool = False, block: tuple[int, int] = BLOCK
) -> tuple[Tensor, Tensor]:
    """Ranks x -> y (n,) and y -> x (m,) of unit rows x (n, k) and y (m, k).

    `rows` (m,) is the row of x that each row of y belongs to. A row of x is ranked by the best of
    its rows of y, with the others left out; a row of y by its one row of x. Both directions share
    each block of scores, and memory is O(n + m).
    """
    # With y in the order of x, the right candidates of a block of rows are a range of columns.
    order = rows.argsort(stable=True)
    rows, y = rows[order], y[order]
    right = torch.cat(
        [
            (x[part] * y[start : start + len(part)]).sum(1)
            for start, part in zip(range(0, len(rows), 8192), rows.split(8192), strict=True)
        ]
    )
    best = right.new_full((len(x),), -inf).scatter_reduce(0, rows, right, "amax")
    tie = -rounding(x) if pessimistic else rounding(x)
    with torch.autocast(x.device.type, enabled=False):
        better_y, better_x = _count_better(x, y, rows, best + tie, right + tie, block)
    y_ranks = torch.empty_like(better_x)
    y_ranks[order] = better_x + 1
    return better_y + 1, y_ranks


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


def rounding(unit: Tensor) -> float:
    """The largest difference between equal cosines: products of rows of `unit` (n, k), of length 1.

    A matrix product rounds equal rows differently, depending on their position. Measured in
    float64: 5 units of rounding at k = 100, 14 at 1,000, 47 at 16,000.
    """
    return max(8.0, math.sqrt(unit.shape[1])) * torch.finfo(unit.dtype).eps


def inverse_norms(x: Tensor) -> Tensor:
    """(n, k) -> (n, 1): one over the length of each row, 0 for rows shorter than `SHORTEST`.

    For differentiable unit vectors x * inverse_norms(x), without the checks of `unit_rows`. A
    length beyond the range of the dtype gives NaN: cosines of 0 would hide that a model diverged.
    """
    norms = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    return torch.div(norms > SHORTEST, norms.clamp_min(SHORTEST)).add_(norms, alpha=0)


def unit_rows(view: Tensor, name: str) -> Tensor:
    """Rows scaled to length 1 in at least float32; zero rows stay zero."""
    bad = int((~torch.isfinite(view)).any(dim=1).sum())
    if bad:
        raise InputError(f"{name} has NaN or infinite values in {bad} of {len(view)} rows.")
    view = view.detach().to(torch.promote_types(view.dtype, torch.float32))
    # Dividing by the largest entry first keeps the squares from overflowing or vanishing.
    largest = view.abs().amax(dim=1, keepdim=True)
    view = view / torch.where(largest > 0, largest, 1)
    norm = torch.linalg.vector_norm(view, dim=1, keepdim=True)
    return view / torch.where(norm > 0, norm, 1)
