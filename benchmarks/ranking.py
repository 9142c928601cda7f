"""Speed of PairwiseRankingLoss against plain autograd and against its three bare products.

Each row times forward and backward in float32, the variants taking turns within one run, and
gives medians. Run with `python -m benchmarks.ranking`.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.timing import Row, medians, show
from ccal.losses import PairwiseRankingLoss

SIZES = ((32, 100), (32, 1000), (128, 1000), (256, 1000), (512, 2000))
# Cosine of a match, from an untrained to a well trained model: it decides how many hinges are
# active.
MATCHES = (0.2, 0.5, 0.7)
MARGIN = 0.5


def pairs(dim: int, count: int, match: float) -> tuple[Tensor, Tensor]:
    """Normal x, and y = x + noise such that matching rows have about the given cosine."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count, dim, generator=generator)
    noise = torch.randn(count, dim, generator=generator) * (match**-2 - 1) ** 0.5
    return x.requires_grad_(), (x.detach() + noise).requires_grad_()


def active_share(x: Tensor, y: Tensor) -> float:
    """The share of the off-diagonal hinges x -> y that are not 0."""
    scores = functional.normalize(x) @ functional.normalize(y).T
    active = scores - scores.diagonal()[:, None] + MARGIN > 0
    return (active.sum() - len(x)).item() / (len(x) * (len(x) - 1))


def plain(x: Tensor, y: Tensor, direction: str) -> Tensor:
    """The loss as one would write it down, for autograd."""
    scores = functional.normalize(x) @ functional.normalize(y).T
    match, others = scores.diagonal(), 1 - torch.eye(len(x))
    loss = (torch.relu(scores - match[:, None] + MARGIN) * others).sum()
    if direction == "both":
        loss = loss + (torch.relu(scores - match + MARGIN) * others).sum()
    return loss / (len(x) * (len(x) - 1))


def row(x: Tensor, y: Tensor, direction: Literal["x->y", "both"], seconds: float) -> Row:
    """One line of a table."""
    count, dim = x.shape
    loss = PairwiseRankingLoss(margin=MARGIN, direction=direction)
    x_data, y_data = x.detach(), y.detach()

    def bare() -> object:
        scores = x_data @ y_data.T
        return scores @ y_data, scores.T @ x_data

    times = medians(
        {
            "plain": lambda: torch.autograd.grad(plain(x, y, direction), (x, y)),
            "fused": lambda: torch.autograd.grad(loss(x, y), (x, y)),
            "bare": bare,
        },
        seconds,
    )
    return {
        "dim": dim,
        "pairs": count,
        "direction": direction,
        "active": round(active_share(x_data, y_data), 4),
        "plain_ms": round(times["plain"], 3),
        "fused_ms": round(times["fused"], 3),
        "bare_ms": round(times["bare"], 3),
        "plain/fused": round(times["plain"] / times["fused"], 2),
        "fused/bare": round(times["fused"] / times["bare"], 2),
    }


def rows(seconds: float = 1.5) -> list[Row]:
    """The table: every size, direction and share of active hinges, `seconds` spent on each."""
    directions: tuple[Literal["x->y", "both"], ...] = ("x->y", "both")
    return [
        row(*pairs(dim, count, match), direction, seconds)
        for dim, count in SIZES
        for direction in directions
        for match in MATCHES
    ]


def main() -> dict[str, list[Row]]:
    """Run, print, and return the table."""
    tables = {"ranking loss": rows()}
    show("Pairwise ranking loss, forward + backward, float32", tables["ranking loss"])
    return tables


if __name__ == "__main__":
    main()
