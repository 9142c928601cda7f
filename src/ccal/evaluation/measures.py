"""What is said of ranks: recall, median, reciprocal and mean."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch

from ccal.errors import InputError
from ccal.evaluation.inputs import Array

__all__ = ["LABELS", "Measures"]

LABELS = {"r1": "R@1", "r5": "R@5", "r10": "R@10", "mr": "MR", "mrr": "MRR", "mean_rank": "mean"}
"""Column headings, in the order of the fields of `Measures`."""


@dataclass(frozen=True)
class Measures:
    """Retrieval measures of one direction.

    `r1`, `r5`, `r10`: queries whose counterpart is among the first 1, 5, 10, in %. `mr`: the median
    rank; of an even number of queries the mean of the middle two. `mrr`: mean of 1 / rank, in %, as
    in the paper's tables. `mean_rank`: the mean rank.

    >>> print(Measures.of(torch.tensor([1, 2, 4, 20])))
    R@1 25.0  R@5 75.0  R@10 75.0  MR 3.0  MRR 45.0  mean 6.8
    """

    r1: float
    r5: float
    r10: float
    mr: float
    mrr: float
    mean_rank: float

    @classmethod
    def of(cls, ranks: Array) -> Measures:
        """Measures of (n,) ranks, which count from 1."""
        r = torch.as_tensor(ranks).double()
        if r.ndim != 1 or len(r) == 0 or not bool((r >= 1).all()):
            raise InputError(
                f"ranks must be a non-empty vector of numbers from 1, got shape {tuple(r.shape)}"
                + (f" and minimum {r.min().item():g}." if r.numel() else ".")
            )
        ordered = r.sort().values
        middle = (ordered[(len(r) - 1) // 2] + ordered[len(r) // 2]) / 2
        r1, r5, r10 = (100 * (r <= k).double().mean().item() for k in (1, 5, 10))
        mrr = 100 * r.reciprocal().mean().item()
        return cls(r1, r5, r10, middle.item(), mrr, r.mean().item())

    def as_dict(self) -> dict[str, float]:
        """The fields by name."""
        return asdict(self)

    def __str__(self) -> str:
        return "  ".join(f"{LABELS[name]} {value:.1f}" for name, value in self.as_dict().items())
