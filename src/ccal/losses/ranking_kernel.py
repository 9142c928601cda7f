"""Loss and gradients of the pairwise ranking loss in one pass over blocks of scores.

The gradient of the loss with respect to the scores is the matrix of active hinges, 0 or 1, with
minus the number of them on the diagonal. So the gradients for the unit vectors are products with
that matrix, and the loss itself follows from them: a hinge is margin + (its score - its match),
and the scores in parentheses sum to <x, gradient of x>. If no gradient is needed, the hinges are
added up. Scores are made in blocks, so memory grows with n and not with its square.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ccal.cca.precision import full_precision
from ccal.ranks import inverse_norms

BLOCK = 1 << 21
"""Scores held at a time: 8 MB in float32 stay in the cache between the passes over them."""

EXCLUDED = -1e30
"""Score of pairs that are no negatives: below every threshold, and finite so that sums work."""


def loss_and_gradients(
    x: Tensor,
    y: Tensor,
    labels: Tensor | None,
    margin: float,
    direction: str,
    mean: bool,
    hardest: bool,
    need_x: bool,
    need_y: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """The loss and its gradients for x and y, both float32 or both float64.

    A gradient that is not needed comes back empty.
    """
    options = labels, margin, direction == "both", mean, hardest
    # A bfloat16 product under autocast can kill the process on some machines.
    with full_precision(x):
        if direction == "y->x":
            loss, gy, gx = _search(y, x, *options, need_y, need_x)
        else:
            loss, gx, gy = _search(x, y, *options, need_x, need_y)
    return loss, gx, gy


# torch.compile does not look into an operator: it could not trace choices that depend on the data.
operator = torch.library.custom_op(
    "ccal::pairwise_ranking",
    loss_and_gradients,
    mutates_args=(),
    schema="(Tensor x, Tensor y, Tensor? labels, float margin, str direction, bool mean, "
    "bool hardest, bool need_x, bool need_y) -> (Tensor, Tensor, Tensor)",
)


@operator.register_fake
def _(
    x: Tensor,
    y: Tensor,
    labels: Tensor | None,
    margin: float,
    direction: str,
    mean: bool,
    hardest: bool,
    need_x: bool,
    need_y: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    return (
        x.new_empty(()),
        x.new_empty(x.shape if need_x else (0,)),
        y.new_empty(y.shape if need_y else (0,)),
    )


def _search(
    x: Tensor,
    y: Tensor,
    labels: Tensor | None,
    margin: float,
    both: bool,
    mean: bool,
    hardest: bool,
    need_x: bool,
    need_y: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    n = len(x)
    x_inverse, y_inverse = inverse_norms(x), inverse_norms(y)
    x_unit, y_unit = x * x_inverse, y * y_inverse
    groups, terms = None, n if hardest else n * (n - 1)
    if labels is not None:
        _, groups, sizes = torch.unique(labels, return_inverse=True, return_counts=True)
        groups = groups.to(x.dtype)
        terms = n if hardest else n * n - int(sizes.square().sum())
    scale = 1 / max(1, terms) if mean else 1.0

    if not (need_x or need_y or hardest):
        total = _sum_of_hinges(x_unit, y_unit, groups, margin, both)
        gx = gy = x_unit.new_empty(0)
    else:
        kernel = _hardest_negatives if hardest else _all_negatives
        either_x = need_x or not need_y
        active, to_x, to_y = kernel(x_unit, y_unit, groups, margin, both, either_x, need_y)
        gx, radial_x = _through_normalisation(to_x, x_unit, x_inverse * scale)
        gy, radial_y = _through_normalisation(to_y, y_unit, y_inverse * scale)
        radial = radial_x if either_x else radial_y
        total = radial.sum(dtype=torch.float64) + margin * active
    return (total * scale).clamp_min(0).to(x.dtype), gx if need_x else gx.new_empty(0), gy


def _through_normalisation(
    gradient: Tensor | None, unit: Tensor, factor: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradient for unit vectors -> for the vectors; and its radial part."""
    if gradient is None:
        return unit.new_empty(0), unit.new_empty(0)
    radial = (gradient * unit).sum(1, keepdim=True)
    return gradient.addcmul_(unit, radial, value=-1).mul_(factor), radial


def _score_blocks(
    x: Tensor, y: Tensor, groups: Tensor | None
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Rows, their scores against all of y with non-negatives excluded, and scratch of that size."""
    n = len(x)
    rows = min(n, max(256, BLOCK // n))
    scores, scratch = x.new_empty(rows, n), x.new_empty(rows, n)
    for start in range(0, n, rows):
        block = slice(start, min(n, start + rows))
        part, spare = scores[: block.stop - start], scratch[: block.stop - start]
        torch.mm(x[block], y.T, out=part)
        if groups is None:
            part.diagonal(start).fill_(EXCLUDED)
        else:
            part.add_(torch.eq(groups[block, None], groups, out=spare), alpha=EXCLUDED)
        yield block, part, spare


def _sum_of_hinges(
    x: Tensor, y: Tensor, groups: Tensor | None, margin: float, both: bool
) -> Tensor:
    bar = (x * y).sum(1) - margin
    total = x.new_zeros((), dtype=torch.float64)
    for block, scores, spare in _score_blocks(x, y, groups):
        for threshold in (bar[block, None], bar) if both else (bar[block, None],):
            torch.sub(scores, threshold, out=spare)
            total += spare.clamp_min_(0).sum(1).sum(dtype=torch.float64)
    return total


def _all_negatives(
    x: Tensor,
    y: Tensor,
    groups: Tensor | None,
    margin: float,
    both: bool,
    need_x: bool,
    need_y: bool,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The number of active hinges, and the gradients of their sum for the unit vectors x and y."""
    bar = (x * y).sum(1) - margin
    counts = torch.zeros_like(bar)
    gx = torch.empty_like(x) if need_x else None
    gy = torch.zeros_like(y) if need_y else None
    for block, scores, spare in _score_blocks(x, y, groups):
        if both:
            torch.gt(scores, bar, out=spare)
            counts += spare.sum(0)
        hits = scores.gt_(bar[block, None])
        counts[block] += hits.sum(1)
        if both:
            hits += spare
        if gx is not None:
            torch.mm(hits, y, out=gx[block])
        if gy is not None:
            gy.addmm_(hits.T, x[block])
    for gradient, match in ((gx, y), (gy, x)):
        if gradient is not None:
            gradient.addcmul_(counts[:, None], match, value=-1)
    return counts.sum(dtype=torch.float64), gx, gy


def _hardest_negatives(
    x: Tensor,
    y: Tensor,
    groups: Tensor | None,
    margin: float,
    both: bool,
    need_x: bool,
    need_y: bool,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The same if only the most similar negative of each query counts."""
    bar = (x * y).sum(1) - margin
    best, rival = torch.empty_like(bar), bar.new_empty(len(x), dtype=torch.int64)
    column_best, column_rival = torch.full_like(best, EXCLUDED), torch.zeros_like(rival)
    for block, scores, _ in _score_blocks(x, y, groups):
        torch.max(scores, 1, out=(best[block], rival[block]))
        if both:
            value, row = scores.max(0)
            torch.where(value > column_best, row + block.start, column_rival, out=column_rival)
            torch.maximum(value, column_best, out=column_best)
    gx = torch.zeros_like(x) if need_x else None
    gy = torch.zeros_like(y) if need_y else None
    active = _push_apart(best > bar, rival, x, y, gx, gy)
    if both:
        active += _push_apart(column_best > bar, column_rival, y, x, gy, gx)
    return active, gx, gy


def _push_apart(
    hits: Tensor,
    rival: Tensor,
    query: Tensor,
    answer: Tensor,
    g_query: Tensor | None,
    g_answer: Tensor | None,
) -> Tensor:
    """Add the gradients of the queries' hinges in place; return how many are active."""
    active = hits.to(query.dtype)[:, None]
    if g_query is not None:
        g_query += active * (answer[rival] - answer)
    if g_answer is not None:
        pull = active * query
        g_answer.index_add_(0, rival, pull).sub_(pull)
    return active.sum(dtype=torch.float64)
