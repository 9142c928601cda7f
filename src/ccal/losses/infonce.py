"""The contrastive loss of CLIP."""

import math

import torch
from torch import Tensor, nn

from ccal.bounds import Number, Options, check
from ccal.cca.precision import working_dtype
from ccal.distributed import average_gradient
from ccal.errors import InputError
from ccal.losses.common import DIRECTIONS, Direction, cosines, join

MAX_SCALE = 100.0


class InfoNCELoss(nn.Module):
    """Cross entropy of picking the match of a query among all candidates of the batch.

    With s the cosine and t the temperature, the direction "x->y" searches y with the queries x:

        mean_i  -log( exp(s(x_i, y_i) / t) / sum_j exp(s(x_i, y_j) / t) )

    "y->x" sums over s(x_j, y_i) below, "both" is the average of the two, as in CLIP.

    Args:
        temperature: t, or where it starts; the smaller, the more the hardest negatives dominate.
        learnable: train t too, as its log inverse `log_scale`, with 1 / t held at 100 or below.
        direction: "x->y", "y->x" or "both".
        gather: the batch is that of all torch.distributed ranks together; see
            `PairwiseRankingLoss`.

    Shapes:
        x, y: (n, k) embeddings, row i of x matching row i of y; normalised inside.
        labels: (n,) integers or None. Other pairs that share the label of a query are left out
            of its sum.
        result: () in float32, or float64 if an input is.

    Use it with large batches and many distinct pairs; a few hundred pairs or more. It needs no
    margin, and unlike the ranking loss it never stops pulling.

    References:
        van den Oord, Li, Vinyals: Representation Learning with Contrastive Predictive Coding,
        2018. Radford et al.: Learning Transferable Visual Models From Natural Language
        Supervision (CLIP), 2021.

    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> loss = InfoNCELoss(temperature=1.0)
    >>> round(loss(x, x).item(), 4)
    0.3133
    >>> round(loss(x, x, labels=torch.tensor([7, 7])).item(), 4)
    0.0
    """

    def __init__(
        self,
        *,
        temperature: float = 0.07,
        learnable: bool = False,
        direction: Direction = "both",
        gather: bool = False,
    ) -> None:
        super().__init__()
        check("temperature", temperature, Number(above=0))
        check("direction", direction, Options(*DIRECTIONS))
        if learnable and temperature < 1 / MAX_SCALE:
            raise InputError(
                f"temperature must be at least {1 / MAX_SCALE:g} if learnable, got {temperature!r}."
            )
        self.direction, self.gather = direction, gather
        self.temperature = temperature
        self.log_scale = nn.Parameter(torch.tensor(-math.log(temperature))) if learnable else None

    def forward(self, x: Tensor, y: Tensor, labels: Tensor | None = None) -> Tensor:
        """(n, k), (n, k), optional (n,) -> the loss, a scalar."""
        batch = join(x, y, labels, gather=self.gather)
        scale, excluded = self.scale(working_dtype(x, y)), batch.false_negatives()
        logits, losses = None, []
        for way, queries, candidates in (("x->y", batch.x, batch.y), ("y->x", batch.y, batch.x)):
            if self.direction not in (way, "both"):
                continue
            if logits is not None and batch.rows is None:
                logits = logits.T
            else:
                logits = cosines(batch.own(queries), candidates) * scale
                if excluded is not None:
                    logits = logits.masked_fill(excluded, -math.inf)
            costs = logits.logsumexp(1) - logits.diagonal(batch.first)
            losses.append(costs.sum() / len(queries))
        return batch.total(torch.stack(losses).mean())

    def scale(self, dtype: torch.dtype = torch.float32) -> Tensor | float:
        """One over the current temperature."""
        if self.log_scale is None:
            return 1 / self.temperature
        # A clamp inside the graph has no gradient beyond its limit, so a temperature that once went
        # too low could never come back. So the parameter itself is clamped, except in a compiled
        # graph, which may hold it.
        limit = math.log(MAX_SCALE)
        if not torch.compiler.is_compiling():
            with torch.no_grad():
                self.log_scale.clamp_(max=limit)
        excess = (self.log_scale.detach() - limit).clamp_min(0)
        log_scale = average_gradient(self.log_scale) if self.gather else self.log_scale
        return (log_scale - excess).to(dtype).exp()

    def extra_repr(self) -> str:
        """The options and the current temperature, for print(module)."""
        learnable, temperature = self.log_scale is not None, self.temperature
        if self.log_scale is not None:
            temperature = math.exp(-float(self.log_scale.detach()))
        gather = ", gather=True" if self.gather else ""
        return f"temperature={temperature:.4g}, {learnable=}, direction={self.direction!r}{gather}"
