"""The pairwise ranking loss of the paper, fused: loss and gradient come from one pass."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from ccal.bounds import Number, Options, check
from ccal.cca.checks import refuse_second_derivative
from ccal.cca.precision import upcast, working_dtype
from ccal.losses.common import DIRECTIONS, Direction, check_embeddings
from ccal.losses.ranking_kernel import loss_and_gradients, operator


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

    def forward(self, x: Tensor, y: Tensor, labels: Tensor | None = None) -> Tensor:
        """(n, k), (n, k), optional (n,) -> the loss, a scalar."""
        check_embeddings(x, y, labels)
        dtype = working_dtype(x, y)
        x, y = upcast(x, dtype), upcast(y, dtype)
        wanted = torch.is_grad_enabled()
        loss: Tensor = _Ranking.apply(  # type: ignore[no-untyped-call]
            x,
            y,
            labels,
            self.margin,
            self.direction,
            self.reduction == "mean",
            self.negatives == "hardest",
            wanted and x.requires_grad,
            wanted and y.requires_grad,
        )
        return loss

    def extra_repr(self) -> str:
        """The options, for print(module)."""
        return (
            f"margin={self.margin}, direction={self.direction!r}, "
            f"reduction={self.reduction!r}, negatives={self.negatives!r}"
        )


class _Ranking(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, *options: Any) -> Tensor:
        run = operator if torch.compiler.is_compiling() else loss_and_gradients
        loss: Tensor
        loss, gx, gy = run(x, y, *options)
        ctx.save_for_backward(gx, gy)
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative("PairwiseRankingLoss")
        found = ctx.saved_tensors
        # The loss of a whole training step has gradient 1; on other devices, to ask would wait.
        eager = grad.device.type == "cpu" and not torch.compiler.is_compiling()
        if not (eager and grad.item() == 1):
            found = (gradient * grad for gradient in found)
        gx, gy = (
            gradient if needed else None
            for gradient, needed in zip(found, ctx.needs_input_grad, strict=False)
        )
        return gx, gy, None, None, None, None, None, None, None
