"""Hubs and neighbours: candidates that are near everything, and candidates that look alike.

In a space of many dimensions some candidates, the hubs, are among the nearest of far too many
queries. `HubCorrection` puts a penalty for hubs into the embeddings, so that any index can search
them; it learns the hubs from *training* queries alone. `csls_scores` and `inverted_softmax_scores`
score a batch of queries against all candidates instead, and may learn the hubs from the batch
itself. `mean_of_neighbours` replaces the embedding of a candidate by the mean of its neighbours',
which averages out errors of single ones; `NeighbourMean` does so as a part of a model.
"""

from typing import Self

import torch
from torch import Tensor, nn

from ccal.bounds import Number, Whole, check
from ccal.errors import InputError
from ccal.ranks import unit_rows

BANK = 20_000
"""Most training pairs that training keeps in a bank, evenly spaced."""

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
    >>> hubs = HubCorrection.of(x, x, neighbours=1)
    >>> (hubs.correct_x(x) @ hubs.correct_y(x).mT).round(decimals=3)[0]
    tensor([ 0.0000, -0.3330, -0.3330])
    """

    bank_x: Tensor
    bank_y: Tensor

    def __init__(self, dim: int, *, bank: int, neighbours: int = 10, weight: float = 0.5) -> None:
        super().__init__()
        check("weight", weight, Number(at_least=0, at_most=1))
        check("neighbours", neighbours, Whole(at_least=1, at_most=bank))
        self.dim, self.bank, self.neighbours, self.weight = dim, bank, neighbours, weight
        self.register_buffer("bank_x", torch.zeros(bank, dim))
        self.register_buffer("bank_y", torch.zeros(bank, dim))

    @classmethod
    def of(cls, x: Tensor, y: Tensor, *, neighbours: int = 10, weight: float = 0.5) -> Self:
        """With the embeddings (m, dim) of training pairs as its bank, on their device.

        Of fewer pairs than `neighbours` the mean is taken over all.
        """
        count = min(neighbours, len(x))
        hubs = cls(x.shape[1], bank=len(x), neighbours=count, weight=weight).to(x.device)
        hubs.fit(x, y)
        return hubs

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
        return self.corrected(x, _mean_of_nearest(x, self.bank_y.to(x.dtype), self.neighbours))

    def correct_y(self, y: Tensor) -> Tensor:
        """Corrected embeddings (n, dim + 4) of view y."""
        y = unit_rows(y, "y")
        hubness = _mean_of_nearest(y, self.bank_x.to(y.dtype), self.neighbours)
        return self.corrected(y, hubness, is_x=False)

    def correct_classes(self, y: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Corrected embeddings (c, dim + 4) of classes by their y (q, dim), and their labels (c,).

        A class is the mean of its y, such as captions. If captions of length 1 have a mean of
        length L, the cosines of an x with them are on average L times its cosine with the class. To
        keep their share, penalties of x count 1 / L times for classes, where L is the mean over all
        classes, so that an x can compare them.
        """
        from ccal.evaluation.classes import class_means  # a search has no classes

        units = unit_rows(y, "y")
        lengths = torch.linalg.vector_norm(class_means(units, labels)[0], dim=1)
        means, classes = class_means(y, labels)
        means = unit_rows(means, "means")
        hubness = _mean_of_nearest(means, self.bank_x.to(means.dtype), self.neighbours)
        # The weight times the gain is 1 at most.
        gain = 1 / (max(float(lengths.mean()), self.weight) or 1.0)
        return self.corrected(means, hubness, is_x=False, gain=gain), classes

    def corrected(
        self, rows: Tensor, hubness: Tensor, *, is_x: bool = True, gain: float = 1.0
    ) -> Tensor:
        """Unit rows (n, dim) of a view, and their h (n,), as corrected embeddings (n, dim + 4).

        The penalties of what these rows look for count `gain` times.
        """
        b = hubness.clamp(-1, 1) * -self.weight
        rest, own, zero = (1 - b.square()).sqrt(), torch.full_like(b, gain), torch.zeros_like(b)
        columns = (own, b, rest, zero) if is_x else (b, own, zero, rest)
        return torch.cat((rows, torch.stack(columns, dim=1)), dim=1) / 3**0.5


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
    check("neighbours", neighbours, Whole(at_least=1))
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
    check("temperature", temperature, Number(above=0))
    asked, held, known = _units(queries, candidates, bank)
    parts = [(part @ known.mT / temperature).logsumexp(1) for part in held.split(_CHUNK)]
    return asked @ held.mT / temperature - torch.cat(parts)


def _units(
    queries: Tensor, candidates: Tensor, bank: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, candidates and bank (by default the queries) as rows of length 1 in one space."""
    bank = queries if bank is None else bank
    named = {"queries": queries, "candidates": candidates, "bank": bank}
    shapes = {name: tuple(view.shape) for name, view in named.items()}
    if any(view.ndim != 2 for view in named.values()) or len({s[1] for s in shapes.values()}) > 1:
        raise InputError(f"queries, candidates and bank must be (n, k) in one space, got {shapes}.")
    if not len(bank) or not len(candidates):
        raise InputError(f"Hubs need at least one query and one candidate, got {shapes}.")
    asked, held, known = (unit_rows(view, name) for name, view in named.items())
    return asked, held, known


def _mean_of_nearest(rows: Tensor, others: Tensor, neighbours: int) -> Tensor:
    """Mean cosine (n,) of unit rows (n, k) to their nearest among unit rows (m, k)."""
    count = min(neighbours, len(others))
    parts = [
        (part @ others.mT).topk(count, sorted=False).values.mean(1) for part in rows.split(_CHUNK)
    ]
    return torch.cat(parts) if parts else rows.new_empty(0)


class NeighbourMean(nn.Module):
    """Embed a collection as a whole: each item as the mean of its nearest neighbours in it.

    Args:
        discriminant: network from the features of items to the space of neighbours.
        count: items that a mean is taken over, the item itself included.

    Shapes: (n, k), (n, d) -> (n, k).

    >>> mean = NeighbourMean(nn.Identity(), count=2)
    >>> mean(torch.eye(2)[[0, 1, 1]], torch.eye(2)[[0, 0, 1]]).round(decimals=2)
    tensor([[0.7100, 0.7100],
            [0.7100, 0.7100],
            [0.0000, 1.0000]])
    """

    def __init__(self, discriminant: nn.Module, count: int) -> None:
        super().__init__()
        check("neighbours", count, Whole(at_least=1))
        self.discriminant, self.count = discriminant, count

    def forward(self, embeddings: Tensor, features: Tensor) -> Tensor:
        """Means (n, k) of embeddings (n, k), by the features (n, d) of the same items."""
        return mean_of_neighbours(embeddings, self.discriminant(features), neighbours=self.count)


def mean_of_neighbours(embeddings: Tensor, features: Tensor, *, neighbours: int) -> Tensor:
    """Mean (n, k), of length 1, of each candidate's nearest by cosine of `features` (n, d).

    `embeddings` (n, k) count with length 1, weighted by that cosine, or not at all if it is
    negative. A candidate is its own nearest neighbour, so `neighbours=1` changes nothing. About
    half as many neighbours as a class has candidates work well. Image retrieval knows this as
    database-side feature augmentation (Arandjelovic and Zisserman, 2012). Time grows with n^2.

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> features = torch.tensor([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    >>> mean_of_neighbours(embeddings, features, neighbours=2).round(decimals=2)
    tensor([[ 0.7100,  0.7100],
            [ 0.7100,  0.7100],
            [ 0.0000, -1.0000]])
    """
    if len(embeddings) != len(features):
        raise InputError(
            f"embeddings and features must be of the same candidates, got {len(embeddings)} and "
            f"{len(features)} rows."
        )
    check("neighbours", neighbours, Whole(at_least=1))
    values, directions = unit_rows(embeddings, "embeddings"), unit_rows(features, "features")
    count = min(neighbours, len(directions))
    parts = []
    for part in directions.split(_CHUNK):
        cosines, nearest = (part @ directions.mT).topk(count)
        weights = cosines.clamp_min(0).to(values.dtype)
        parts.append((weights[..., None] * values[nearest]).sum(1))
    return unit_rows(torch.cat(parts), "means") if parts else values
