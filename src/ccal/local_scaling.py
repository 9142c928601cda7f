"""Scores that set hubs back at query time: CSLS and inverted softmax.

Both take a candidate for the less, the nearer it is to queries in general. Where `ccal.hubs` puts
that into the embeddings, so that any index can be searched, these functions score a batch of
queries against all candidates, and can learn what queries are like from the batch itself.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ccal.errors import InputError
from ccal.ranks import unit_rows

__all__ = ["csls_scores", "inverted_softmax_scores"]

_CHUNK = 1024


def csls_scores(
    queries: Tensor, candidates: Tensor, *, bank: Tensor | None = None, neighbours: int = 10
) -> Tensor:
    """Scores (q, n) of queries (q, k) against candidates (n, k), larger is nearer.

    2 cos(q, c) - r(q) - r(c), where r(q) is the mean cosine of a query to its nearest candidates,
    and r(c) that of a candidate to its nearest queries (Conneau et al., Word Translation Without
    Parallel Data, 2018). These come from `bank` (m, k), such as training queries; None is the batch
    itself, which needs many queries that have little in common.

    >>> queries = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> candidates = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    >>> csls_scores(queries, candidates, neighbours=2).argmax(1)
    tensor([0, 1])
    """
    if neighbours < 1:
        raise InputError(f"neighbours must be 1 or more, got {neighbours}.")
    asked, held, known = _units(queries, candidates, bank)
    of_candidates = _mean_of_nearest(held, known, neighbours)
    of_queries = _mean_of_nearest(asked, held, neighbours)
    return 2 * (asked @ held.mT) - of_queries[:, None] - of_candidates


def inverted_softmax_scores(
    queries: Tensor, candidates: Tensor, *, bank: Tensor | None = None, temperature: float = 0.07
) -> Tensor:
    """Scores (q, n) of queries (q, k) against candidates (n, k), larger is nearer.

    The logarithm of a softmax over queries instead of candidates: how much of a candidate's
    attention is for this query (Smith et al., Offline Bilingual Word Vectors, 2017),

        cos(q, c) / t - log sum_b exp(cos(b, c) / t)

    with t the temperature and b the queries of `bank` (m, k); None is the batch itself.

    >>> queries = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> candidates = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    >>> inverted_softmax_scores(queries, candidates).argmax(1)
    tensor([0, 1])
    """
    if not 0 < temperature < float("inf"):
        raise InputError(f"temperature must be a finite number greater than 0, got {temperature}.")
    asked, held, known = _units(queries, candidates, bank)
    parts = [(part @ known.mT / temperature).logsumexp(1) for part in held.split(_CHUNK)]
    return asked @ held.mT / temperature - torch.cat(parts)


def _units(
    queries: Tensor, candidates: Tensor, bank: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """All three as rows of length 1, in one space; the bank must hold something."""
    bank = queries if bank is None else bank
    named = {"queries": queries, "candidates": candidates, "bank": bank}
    shapes = {name: tuple(view.shape) for name, view in named.items()}
    if any(view.ndim != 2 for view in named.values()) or len({s[1] for s in shapes.values()}) > 1:
        raise InputError(f"queries, candidates and bank must be (n, k) in one space, got {shapes}.")
    if not len(bank) or not len(candidates):
        raise InputError(f"Hubs cannot be told without queries and candidates, got {shapes}.")
    asked, held, known = (unit_rows(view, name) for name, view in named.items())
    return asked, held, known


def _mean_of_nearest(rows: Tensor, others: Tensor, neighbours: int) -> Tensor:
    """Mean cosine (n,) of unit rows (n, k) to their nearest among unit rows (m, k)."""
    count = min(neighbours, len(others))
    parts = [
        (part @ others.mT).topk(count, sorted=False).values.mean(1) for part in rows.split(_CHUNK)
    ]
    return torch.cat(parts)
