"""Slow references in float64: loops over pairs."""

from __future__ import annotations

import torch
from torch import Tensor


def cosines(x: Tensor, y: Tensor) -> list[list[float]]:
    x, y = x.double(), y.double()
    return [[float(a @ b / max(a.norm() * b.norm(), 1e-300)) for b in y] for a in x]


def ranks(
    x: Tensor, y: Tensor, groups: list[int], *, pessimistic: bool = False, close: float = 1e-12
) -> tuple[list[int], list[int]]:
    """x -> y by the best right candidate, y -> x by the only one; scores within `close` tie."""
    scores = cosines(x, y)

    def rank(right: float, wrong: list[float]) -> int:
        margin = -close if pessimistic else close
        return 1 + sum(score > right + margin for score in wrong)

    forth = [
        rank(
            max(s for s, g in zip(row, groups, strict=True) if g == i),
            [s for s, g in zip(row, groups, strict=True) if g != i],
        )
        for i, row in enumerate(scores)
    ]
    back = [
        rank(scores[g][j], [scores[i][j] for i in range(len(x)) if i != g])
        for j, g in enumerate(groups)
    ]
    return forth, back


def general_ranks(
    x: Tensor,
    y: Tensor,
    right: list[list[bool]],
    *,
    pessimistic: bool = False,
    close: float = 1e-12,
) -> tuple[list[int], list[int]]:
    """Ranks of both directions where `right[i][j]` says whether x i and y j belong together."""
    scores, margin = cosines(x, y), -close if pessimistic else close

    def rank(of_query: list[float], matches: list[bool]) -> int:
        best = max(s for s, match in zip(of_query, matches, strict=True) if match)
        wrong = [s for s, match in zip(of_query, matches, strict=True) if not match]
        return 1 + sum(s > best + margin for s in wrong)

    forth = [rank(*both) for both in zip(scores, right, strict=True)]
    columns = zip(zip(*scores, strict=True), zip(*right, strict=True), strict=True)
    return forth, [rank(list(s), list(matches)) for s, matches in columns]


def precision_at(query: Tensor, label: int, items: Tensor, labels: list[int], k: int) -> float:
    order = sorted(range(len(items)), key=lambda i: -cosines(query[None], items)[0][i])
    return sum(labels[i] == label for i in order[:k]) / k


def captions(n: int, m: int, k: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """x (n, k), y (m, k) and groups (m,), every row of x with at least one row of y."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, k, generator=generator).double()
    groups = torch.cat((torch.arange(n), torch.randint(n, (m - n,), generator=generator)))
    groups = groups[torch.randperm(m, generator=generator)]
    return x, x[groups] + torch.randn(m, k, generator=generator).double(), groups
