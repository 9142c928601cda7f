"""The pairwise sigmoid loss of SigLIP."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from ccal.bounds import Number, check
from ccal.distributed import average_gradient
from ccal.losses.common import cosines, join


class SigmoidLoss(nn.Module):
    """Logistic regression on every combination of the batch: does it match or not?

    With s the cosine, z_ij = 1 for a match (i = j) and -1 otherwise:

        -mean_i sum_j log sigmoid( z_ij (scale * s(x_i, y_j) + bias) )

    Args:
        scale: the start of the learned scale, stored as its logarithm `log_scale`.
        bias: the start of the learned `bias`. A value far below 0 makes matches rare from the
            start; otherwise the many mismatches would dominate the first steps.
        gather: the batch is that of all torch.distributed ranks together; see
            `PairwiseRankingLoss`.

    Shapes:
        x, y: (n, k) embeddings, row i of x matching row i of y; normalised inside.
        labels: (n,) integers or None. Combinations of different pairs that share a label are
            left out of the sum.
        result: () in float32, or float64 if an input is.

    Use it where batches are small or vary in size, since no term depends on the others. Give its
    two parameters to the optimiser.

    Reference:
        Zhai, Mustafa, Kolesnikov, Beyer: Sigmoid Loss for Language Image Pre-Training, 2023.

    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> loss = SigmoidLoss(scale=2.0, bias=-1.0)
    >>> round(loss(x, x).item(), 4)
    0.6265
    >>> sorted(name for name, _ in loss.named_parameters())
    ['bias', 'log_scale']
    """

    def __init__(self, *, scale: float = 10.0, bias: float = -10.0, gather: bool = False) -> None:
        super().__init__()
        check("scale", scale, Number(above=0))
        check("bias", bias, Number())
        self.log_scale = nn.Parameter(torch.tensor(math.log(scale)))
        self.bias = nn.Parameter(torch.tensor(float(bias)))
        self.gather = gather

    def forward(self, x: Tensor, y: Tensor, labels: Tensor | None = None) -> Tensor:
        """(n, k), (n, k), optional (n,) -> the loss, a scalar."""
        batch = join(x, y, labels, gather=self.gather)
        parameters = self.log_scale, self.bias
        log_scale, bias = map(average_gradient, parameters) if self.gather else parameters
        scores = cosines(batch.own(batch.x), batch.y)
        logits = scores * log_scale.to(scores.dtype).exp() + bias
        match = torch.zeros_like(logits, dtype=torch.bool)
        match.diagonal(batch.first).fill_(True)
        costs = functional.softplus(torch.where(match, -logits, logits))
        excluded = batch.false_negatives()
        if excluded is not None:
            costs = costs.masked_fill(excluded, 0)
        return batch.total(costs.sum() / len(batch.x))

    def extra_repr(self) -> str:
        """The current scale and bias, for print(module)."""
        scale, bias = math.exp(float(self.log_scale.detach())), float(self.bias.detach())
        gather = ", gather=True" if self.gather else ""
        return f"scale={scale:.4g}, bias={bias:.4g}{gather}"
