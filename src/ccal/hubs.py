"""Hub correction: items that are near everything are set back.

In a space of many dimensions some candidates, the hubs, are among the nearest of far too many
queries. Their mean cosine to the nearest *training* queries tells which they are, without a look at
any other candidate or query.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ccal.errors import InputError
from ccal.ranks import unit_rows

__all__ = ["HubCorrection"]

_CHUNK = 1024


class HubCorrection(nn.Module):
    """Turn embeddings into corrected ones, whose cosines rank by cosine minus a penalty for hubs.

    With h(c) the mean cosine of a candidate c to its nearest training queries, the corrected score
    of a query q is cos(q, c) - weight * h(c): the candidate's half of CSLS (Conneau et al., Word
    Translation Without Parallel Data, 2018) with the training pairs as its bank. Here it becomes a
    plain cosine again: with b = -weight * h and s = sqrt(1 - b^2), the corrected embeddings

        x -> (x, 1, b_x, s_x, 0) / sqrt(3)        y -> (y, b_y, 1, 0, s_y) / sqrt(3)

    have length 1 and the product (cos(x, y) + b_x + b_y) / 3, where the query's own b changes no
    rank. So both directions, and any engine that searches by cosine, work as before.

    Args:
        dim: dimension k of the embeddings; corrected ones have k + 4.
        bank: training pairs that are kept to compare with.
        neighbours: how many of them a mean is taken over, at most `bank`.
        weight: of the penalty, from 0 (none) to 1.

    >>> x = torch.eye(3)
    >>> hubs = HubCorrection(3, bank=3, neighbours=1)
    >>> hubs.fit(x, x)
    >>> (hubs.correct_x(x) @ hubs.correct_y(x).mT).round(decimals=3)[0]
    tensor([ 0.0000, -0.3330, -0.3330])
    """

    bank_x: Tensor
    bank_y: Tensor

    def __init__(self, dim: int, *, bank: int, neighbours: int = 10, weight: float = 0.5) -> None:
        super().__init__()
        if not 0 <= weight <= 1:
            raise InputError(f"weight must lie between 0 and 1, got {weight}.")
        if not 1 <= neighbours <= bank:
            raise InputError(f"neighbours must lie between 1 and bank ({bank}), got {neighbours}.")
        self.dim, self.bank, self.neighbours, self.weight = dim, bank, neighbours, weight
        self.register_buffer("bank_x", torch.zeros(bank, dim))
        self.register_buffer("bank_y", torch.zeros(bank, dim))

    def config(self) -> dict[str, float]:
        """Constructor arguments, as plain data."""
        names = ("dim", "bank", "neighbours", "weight")
        return {name: getattr(self, name) for name in names}

    @torch.no_grad()
    def fit(self, x: Tensor, y: Tensor) -> None:
        """Keep the embeddings (bank, dim) of training pairs."""
        self.bank_x.copy_(unit_rows(x, "x"))
        self.bank_y.copy_(unit_rows(y, "y"))

    def correct_x(self, x: Tensor) -> Tensor:
        """Corrected embeddings (n, dim + 4) of view x."""
        x = unit_rows(x, "x")
        b = self._penalty(x, self.bank_y)
        columns = torch.ones_like(b), b, (1 - b.square()).sqrt(), torch.zeros_like(b)
        return torch.cat((x, torch.stack(columns, dim=1)), dim=1) / 3**0.5

    def correct_y(self, y: Tensor) -> Tensor:
        """Corrected embeddings (n, dim + 4) of view y."""
        y = unit_rows(y, "y")
        b = self._penalty(y, self.bank_x)
        columns = b, torch.ones_like(b), torch.zeros_like(b), (1 - b.square()).sqrt()
        return torch.cat((y, torch.stack(columns, dim=1)), dim=1) / 3**0.5

    def _penalty(self, candidates: Tensor, queries: Tensor) -> Tensor:
        """-weight * h for each candidate (n, dim), against training queries (bank, dim)."""
        queries = queries.to(candidates.dtype).mT
        means = [
            (part @ queries).topk(self.neighbours, dim=1, sorted=False).values.mean(1)
            for part in candidates.split(_CHUNK)
        ]
        hubness = torch.cat(means) if means else candidates.new_empty(0)
        return hubness.clamp(-1, 1) * -self.weight
