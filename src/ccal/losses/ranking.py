"""The pairwise ranking loss of the paper, fused: one pass gives the loss and its gradients.

The gradient of the loss with respect to the scores is the matrix of active hinges, 0 or 1, with
minus the number of them on the diagonal. So the gradients for the unit vectors are products with
that matrix, and the loss itself follows from them: a hinge is margin + (its score - its match),
and the scores in parentheses sum to <x, gradient of x>. If no gradient is needed, the hinges are
added up. Scores are made in blocks, so memory grows with n and not with its square.
"""

from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ccal.bounds import Number, Options, check
from ccal.cca.checks import refuse_second_derivative
from ccal.cca.precision import full_precision, upcast, working_dtype
from ccal.losses.common import DIRECTIONS, Direction, join
from ccal.ranks import inverse_norms

# Scores held at a time: 8 MB in float32 stay in the cache between the passes over them.
BLOCK = 1 << 21

# Score of pairs that are no negatives: below every threshold, and finite so that sums work.
_EXCLUDED = -1e30


class PairwiseRankingLoss(nn.Module):
    """Hinge loss that ranks each matching pair above the mismatched ones by a margin.

    With s the cosine, the direction "x->y" searches y with the queries x:

        sum_i sum_{j != i} max(0, margin - s(x_i, y_i) + s(x_i, y_j))

    "y->x" searches x with y (the last term is s(x_j, y_i)), "both" adds the two.

    Args:
        margin: the cosine by which a match must beat a mismatch.
        direction: "x->y" (the paper's), "y->x" or "both".
        reduction: "sum" as the formula, or "mean" as the authors' code: the sum divided by the
            number of hinges of one direction. So "both" is the sum of two means, and its size
            does not depend on the batch.
        negatives: "all" as the formula, or "hardest": only the most similar negative of each
            query counts (VSE++), and "mean" divides by the number of queries.
        gather: under torch.distributed, the batch is that of all ranks together, labels too, and
            every rank gets its loss; batches may differ in size. Each rank computes the terms
            of its own queries among the candidates of all. Gradients are scaled so that their mean
            over ranks, which DistributedDataParallel takes, is that of one process with the
            whole batch. All ranks must call the loss. Without a process group it changes nothing.

    Shapes:
        x, y: (n, k) embeddings, row i of x matching row i of y; normalised inside.
            A vector shorter than 1e-12 has cosine 0 with everything and gets no gradient.
        labels: (n,) integers or None. Pairs that share a label are not negatives of each other.
        result: () in float32, or float64 if an input is.

    Use it as the paper does, on the output of a CCA layer, or on any two encoders. Prefer
    "all" early in training; "hardest" sharpens a model that ranks well already, and suffers from
    wrong pairs in the data. Memory grows with n, not its square: the scores are never held all at
    once if n is large. The loss cannot be differentiated twice.

    References:
        Kiros, Salakhutdinov, Zemel: Unifying Visual-Semantic Embeddings with Multimodal Neural
        Language Models, 2014. Faghri, Fleet, Kiros, Fidler: VSE++, 2018 ("hardest").
        Dorfer, Schlüter, Vall, Korzeniowski, Widmer: End-to-End Cross-Modality Retrieval with
        CCA Projections and Pairwise Ranking Loss, 2018.

    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0]], requires_grad=True)
    >>> y = torch.tensor([[1.0, 0.0], [0.6, 0.8]])
    >>> loss = PairwiseRankingLoss(margin=0.5)(x, y)
    >>> loss.backward()
    >>> round(loss.item(), 4), x.grad is not None
    (0.05, True)
    """

    def __init__(
        self,
        *,
        margin: float = 0.5,
        direction: Direction = "x->y",
        reduction: Literal["mean", "sum"] = "mean",
        negatives: Literal["all", "hardest"] = "all",
        gather: bool = False,
    ) -> None:
        super().__init__()
        check("margin", margin, Number(at_least=0))
        check("direction", direction, Options(*DIRECTIONS))
        check("reduction", reduction, Options("mean", "sum"))
        check("negatives", negatives, Options("all", "hardest"))
        self.margin = margin
        self.direction = direction
        self.reduction = reduction
        self.negatives = negatives
        self.gather = gather

    def forward(self, x: Tensor, y: Tensor, labels: Tensor | None = None) -> Tensor:
        """(n, k), (n, k), optional (n,) -> the loss, a scalar."""
        batch = join(x, y, labels, gather=self.gather)
        dtype = working_dtype(x, y)
        x, y = upcast(batch.x, dtype), upcast(batch.y, dtype)
        options = self.margin, self.direction, self.reduction == "mean", self.negatives == "hardest"
        needed = (torch.is_grad_enabled() and view.requires_grad for view in (x, y))
        rows = None if batch.rows is None else [batch.rows.start, batch.rows.stop]
        part: Tensor = _Ranking.apply(x, y, batch.labels, rows, *options, *needed)  # type: ignore[no-untyped-call]
        return batch.total(part)

    def extra_repr(self) -> str:
        """The options, for print(module)."""
        return (
            f"margin={self.margin}, direction={self.direction!r}, "
            f"reduction={self.reduction!r}, negatives={self.negatives!r}"
            f"{', gather=True' if self.gather else ''}"
        )


class _Ranking(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        run = operator if torch.compiler.is_compiling() else _loss_and_gradients
        loss: Tensor
        loss, gx, gy = run(*arguments)
        ctx.save_for_backward(gx, gy)
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative("PairwiseRankingLoss")
        found = ctx.saved_tensors
        # The loss of a whole training step has gradient 1; on other devices, to ask would wait.
        eager = grad.device.type == "cpu" and not torch.compiler.is_compiling()
        if not (eager and grad.item() == 1):
            found = [gradient * grad for gradient in found]
        needed_x, needed_y, *others = ctx.needs_input_grad
        return found[0] if needed_x else None, found[1] if needed_y else None, *[None] * len(others)


def _loss_and_gradients(
    x: Tensor,
    y: Tensor,
    labels: Tensor | None,
    rows: list[int] | None,
    margin: float,
    direction: str,
    mean: bool,
    hardest: bool,
    need_x: bool,
    need_y: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """The loss and its gradients for x and y, both float32 or both float64.

    Only queries of `rows`, from the first to the last but one, count, or all if it is None. A
    gradient that is not needed comes back empty.
    """
    if direction == "y->x":
        options = labels, rows, margin, "x->y", mean, hardest
        loss, to_y, to_x = _loss_and_gradients(y, x, *options, need_y, need_x)
        return loss, to_x, to_y
    if direction == "both" and hardest and rows is not None:
        # These rows hold no maximum of a column, so each direction has scores of its own.
        one, other = (
            _loss_and_gradients(x, y, labels, rows, margin, way, mean, hardest, need_x, need_y)
            for way in ("x->y", "y->x")
        )
        return one[0] + other[0], one[1] + other[1], one[2] + other[2]
    n, both = len(x), direction == "both"
    groups, terms = None, n * (n - 1)
    if labels is not None:
        _, groups, sizes = torch.unique(labels, return_inverse=True, return_counts=True)
        groups, terms = groups.to(x.dtype), n * n - int(sizes.square().sum())
    scale = 1 / max(1, n if hardest else terms) if mean else 1.0
    # The loss follows from one gradient, whether it is needed or not.
    gx = torch.zeros_like(x) if need_x or (hardest and not need_y) else None
    gy = torch.zeros_like(y) if need_y else None
    # A bfloat16 product under autocast can kill the process on some machines.
    with full_precision(x):
        x_inverse, y_inverse = inverse_norms(x), inverse_norms(y)
        x_unit, y_unit = x * x_inverse, y * y_inverse
        bar = (x_unit * y_unit).sum(1) - margin
        if gx is None and gy is None:
            total = _sum_of_hinges(x_unit, y_unit, groups, rows, bar, both)
        else:
            kernel = _hardest_negatives if hardest else _all_negatives
            active = kernel(x_unit, y_unit, groups, rows, bar, both, gx, gy)
            for gradient, unit, inverse in ((gy, y_unit, y_inverse), (gx, x_unit, x_inverse)):
                if gradient is not None:
                    # From the gradient of the unit vectors to that of the vectors.
                    radial = (gradient * unit).sum(1, keepdim=True)
                    gradient.addcmul_(unit, radial, value=-1).mul_(inverse * scale)
            total = radial.sum(dtype=torch.float64) + margin * active
    loss = (total * scale).clamp_min(0).to(x.dtype)
    empty_x, empty_y = x.new_empty(0), y.new_empty(0)
    return loss, gx if need_x and gx is not None else empty_x, empty_y if gy is None else gy


# torch.compile does not look into an operator: it could not trace choices that depend on the data.
operator = torch.library.custom_op(
    "ccal::pairwise_ranking",
    _loss_and_gradients,
    mutates_args=(),
    schema="(Tensor x, Tensor y, Tensor? labels, int[]? rows, float margin, str direction, "
    "bool mean, bool hardest, bool need_x, bool need_y) -> (Tensor, Tensor, Tensor)",
)


@operator.register_fake
def _(x: Tensor, y: Tensor, *options: Any) -> tuple[Tensor, Tensor, Tensor]:
    *_, need_x, need_y = options
    gx, gy = x.new_empty(x.shape if need_x else 0), y.new_empty(y.shape if need_y else 0)
    return x.new_empty(()), gx, gy


def _score_blocks(
    x: Tensor, y: Tensor, groups: Tensor | None, rows: list[int] | None
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Rows, their scores against all of y with non-negatives excluded, and scratch of that size."""
    n = len(x)
    first, last = (0, n) if rows is None else rows
    size = min(last - first, max(256, BLOCK // n))
    scores, scratch = x.new_empty(size, n), x.new_empty(size, n)
    for start in range(first, last, max(1, size)):
        block = slice(start, min(last, start + size))
        part, spare = scores[: block.stop - start], scratch[: block.stop - start]
        torch.mm(x[block], y.T, out=part)
        if groups is None:
            part.diagonal(start).fill_(_EXCLUDED)
        else:
            part.add_(torch.eq(groups[block, None], groups, out=spare), alpha=_EXCLUDED)
        yield block, part, spare


def _sum_of_hinges(
    x: Tensor, y: Tensor, groups: Tensor | None, rows: list[int] | None, bar: Tensor, both: bool
) -> Tensor:
    total = x.new_zeros((), dtype=torch.float64)
    for block, scores, spare in _score_blocks(x, y, groups, rows):
        for threshold in (bar[block, None], bar) if both else (bar[block, None],):
            torch.sub(scores, threshold, out=spare)
            total += spare.clamp_min_(0).sum(1).sum(dtype=torch.float64)
    return total


def _all_negatives(
    x: Tensor,
    y: Tensor,
    groups: Tensor | None,
    rows: list[int] | None,
    bar: Tensor,
    both: bool,
    *gradients: Tensor | None,
) -> Tensor:
    """The number of active hinges; the gradients of their sum for x and y are added in place."""
    gx, gy = gradients
    counts = torch.zeros_like(bar)
    for block, scores, spare in _score_blocks(x, y, groups, rows):
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
    return counts.sum(dtype=torch.float64)


def _hardest_negatives(
    x: Tensor,
    y: Tensor,
    groups: Tensor | None,
    rows: list[int] | None,
    bar: Tensor,
    both: bool,
    *gradients: Tensor | None,
) -> Tensor:
    """The same if only the most similar negative of each query counts."""
    best, rival = torch.full_like(bar, _EXCLUDED), bar.new_zeros(len(x), dtype=torch.int64)
    column_best, column_rival = best.clone(), rival.clone()
    for block, scores, _ in _score_blocks(x, y, groups, rows):
        torch.max(scores, 1, out=(best[block], rival[block]))
        if both:
            value, row = scores.max(0)
            torch.where(value > column_best, row + block.start, column_rival, out=column_rival)
            torch.maximum(value, column_best, out=column_best)
    gx, gy = gradients
    active = _push_apart(best > bar, rival, x, y, gx, gy)
    if both:
        active += _push_apart(column_best > bar, column_rival, y, x, gy, gx)
    return active


def _push_apart(
    hits: Tensor, rival: Tensor, query: Tensor, answer: Tensor, *gradients: Tensor | None
) -> Tensor:
    """Add the gradients of the queries' hinges in place; return how many are active."""
    g_query, g_answer = gradients
    active = hits.to(query.dtype)[:, None]
    if g_query is not None:
        g_query += active * (answer[rival] - answer)
    if g_answer is not None:
        pull = active * query
        g_answer.index_add_(0, rival, pull).sub_(pull)
    return active.sum(dtype=torch.float64)
