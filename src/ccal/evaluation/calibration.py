"""`Calibration`: from cosines to the chance that a hit is right, and to a word for people.

Cosines of different models, and even of different queries of one model, cannot be compared: the
best hit of a good query may have 0.15. Beside the other scores of its own query a score says more.
With the cosines s_1 >= s_2 >= ... of a query to all N items, of which R are right on average,

    w_i = exp(scale * s_i),    odds that hit i is right = R w_i / (sum of all w_j - w_i),

which is the softmax over the items if R is 1. Validation pairs give `scale`, by maximum likelihood.
A search returns the best items only, so `chances` sums w over the first 10 and estimates the rest:
if the cosines of wrong items have a normal distribution of standard deviation `spread`, the 10th of
N lies at its quantile 1 - 10 / N, and all items below it together weigh

    N exp(a^2 / 2 - a t) Phi(t - a) w_10,    t = Phi^-1(1 - 10 / N),    a = scale * spread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Any, Literal, Self, get_args

import torch
from torch import Tensor

from ccal.evaluation.inputs import Array, unit_pair

Match = Literal["strong", "fair", "weak"]

HEAD = 10
"""The best hits of a query that `Calibration.chances` compares; it needs so many, if there are."""

STRONG = 0.5
_FAIR = 0.1
# Fewer validation queries say too little.
_FEWEST = 20
_MOST_QUERIES, _MOST_ITEMS = 500, 2000
_SCALES = (1.0, 3000.0)


@dataclass(frozen=True)
class Calibration:
    """Turns scores of queries of one modality into chances, as estimated on validation pairs.

    Attributes:
        scale: how fast the odds grow with the cosine.
        spread: standard deviation of the cosines of one query with wrong items.
        positives: mean number of right items of a query.
        queries: number of validation queries.
        candidates: number of items that they were compared with.

    >>> calibration = Calibration(20.0, 0.1, 1.0, 200, 1000)
    >>> [round(chance, 2) for chance in calibration.chances([0.5, 0.4, 0.1], candidates=3)]
    [0.88, 0.12, 0.0]
    """

    scale: float
    spread: float
    positives: float
    queries: int
    candidates: int

    @classmethod
    def fit(cls, queries: Array, items: Array, links: tuple[Tensor, Tensor]) -> Self | None:
        """Calibrate by embeddings (q, k) of validation queries and (m, k) of the items.

        `links` are the row of the query and the row of the item of each pair that belongs together.
        Of many queries, 500 count, and 2,000 items. None with fewer than 20 queries, or if every
        item is right.
        """
        rows, columns = unit_pair(queries, items)
        if len(rows) < _FEWEST:
            return None
        chosen = _spaced(len(rows), _MOST_QUERIES)
        number = torch.full((len(rows),), -1, dtype=torch.int64)
        number[chosen] = torch.arange(len(chosen))
        query, item = number[links[0].cpu()], links[1].cpu()
        query, item = query[query >= 0], item[query >= 0]
        kept = torch.zeros(len(columns), dtype=torch.bool)
        kept[item] = True
        kept[_spaced(len(columns), _MOST_ITEMS)] = True
        right = torch.zeros(len(chosen), len(columns), dtype=torch.bool)
        right[query, item] = True
        right = right[:, kept]
        scores = (rows[chosen.to(rows.device)] @ columns[kept.to(rows.device)].mT).cpu().float()
        if right.all() or not right.any():
            return None
        positives = float(right.sum(1, dtype=torch.float64).mean())
        scale = _most_likely(lambda scale: _loss(scores, right, scale, positives))
        return cls(scale, _spread(scores, right), positives, len(rows), len(columns))

    def as_dict(self) -> dict[str, Any]:
        """The attributes, ready for JSON."""
        return asdict(self)

    def chances(self, scores: Sequence[float], candidates: int) -> list[float]:
        """The chance of each hit to be right, from the cosines of a query's hits, the best first.

        `scores` must be those of the 10 best of `candidates` items at least; fewer are taken for
        all items there are.
        """
        if not scores:
            return []
        best, most = scores[0], (self.queries + 1) / (self.queries + 2)
        weights = [math.exp(self.scale * (score - best)) for score in scores]
        total = sum(weights[:HEAD])
        if len(scores) >= HEAD:
            total += weights[HEAD - 1] * _tail(self.scale * self.spread, candidates)
        right = [self.positives * weight for weight in weights]
        rest = [max(total - weight, 1e-12) for weight in weights]
        return [min(r / (r + others), most) for r, others in zip(right, rest, strict=True)]

    def fair(self, candidates: int) -> float:
        """The least chance of a hit among so many items that is called fair.

        1 in 10; beyond 100 items 1 / sqrt(items): among many, several fit as well as the right one,
        and the best of them must not look like failures.

        >>> Calibration(20.0, 0.1, 1.0, 200, 1000).fair(10_000)
        0.01
        """
        return min(_FAIR, 1 / math.sqrt(max(candidates / max(self.positives, 1.0), 1.0)))

    def judged(self, scores: Sequence[float], candidates: int) -> list[tuple[float, Match]]:
        """The chance of each hit and its word: strong from 1 in 2, fair from `fair` on, or weak."""
        fair = self.fair(candidates)
        return [
            (chance, "strong" if chance >= STRONG else "fair" if chance >= fair else "weak")
            for chance in self.chances(scores, candidates)
        ]


@dataclass(frozen=True)
class Reliability:
    """How many hits were called strong, fair and weak, and how many of these were right.

    >>> counts = {"strong": (71, 100), "fair": (20, 100), "weak": (9, 900)}
    >>> print(Reliability("x -> y", counts))
    x -> y: right were 71% of strong (71 of 100), 20% of fair (20 of 100), 1% of weak (9 of 900)
    """

    name: str
    counts: dict[Match, tuple[int, int]]

    @classmethod
    def of(
        cls,
        name: str,
        calibration: Calibration,
        queries: Array,
        items: Array,
        links: tuple[Tensor, Tensor],
    ) -> Self:
        """Compare the first 10 hits of each query with what is right; see `Calibration.fit`."""
        rows, columns = unit_pair(queries, items)
        right = set(zip(links[0].tolist(), links[1].tolist(), strict=True))
        counts: dict[Match, tuple[int, int]] = dict.fromkeys(get_args(Match), (0, 0))
        query = 0
        for part in rows.split(256):
            best = (part @ columns.mT).topk(min(HEAD, len(columns)))
            for scores, found in zip(best.values.tolist(), best.indices.tolist(), strict=True):
                judged = calibration.judged(scores, len(columns))
                for item, (_, word) in zip(found, judged, strict=True):
                    good, hits = counts[word]
                    counts[word] = (good + ((query, item) in right), hits + 1)
                query += 1
        return cls(name, counts)

    def as_dict(self) -> dict[str, Any]:
        """Numbers and names only, ready for JSON."""
        counted = self.counts.items()
        words: dict[str, Any] = {word: {"right": r, "hits": hits} for word, (r, hits) in counted}
        return {"name": self.name, **words}

    def __str__(self) -> str:
        shares = [
            f"{100 * right / max(hits, 1):.0f}% of {word} ({right:,} of {hits:,})"
            for word, (right, hits) in self.counts.items()
        ]
        return f"{self.name}: right were {', '.join(shares)}"


def calibrate(
    names: tuple[str, str], x: Array, y: Array, links: tuple[Tensor, Tensor]
) -> dict[str, Calibration]:
    """The calibration of queries of each modality, by its name; none that cannot be estimated.

    `x` (a, k) and `y` (b, k) are embeddings of validation items, `links` the row of x and the row
    of y of each pair that belongs together.
    """
    forth = Calibration.fit(x, y, links)
    back = Calibration.fit(y, x, (links[1], links[0]))
    both = zip(names, (forth, back), strict=True)
    return {name: found for name, found in both if found is not None}


def _spaced(n: int, at_most: int) -> Tensor:
    """Row numbers below n, evenly spaced if there are more than `at_most`."""
    return torch.arange(min(n, at_most)) * n // min(n, at_most)


def _spread(scores: Tensor, right: Tensor) -> float:
    """Standard deviation of the scores (q, m) of wrong items around the mean of their query."""
    scores, wrong = scores.double(), (~right).double()
    counts = wrong.sum(1, keepdim=True)
    means = (scores * wrong).sum(1, keepdim=True) / counts.clamp_min(1)
    squares = ((scores - means).square() * wrong).sum()
    return math.sqrt(float(squares) / max(float((counts - 1).clamp_min(0).sum()), 1.0))


def _loss(scores: Tensor, right: Tensor, scale: float, positives: float) -> float:
    """Negative log likelihood of what is right among scores (q, m).

    Targets are Platt's (1999): a little below 1 and above 0, so that perfect hits on few pairs give
    no infinite scale.
    """
    weights = scale * (scores - scores.amax(1, keepdim=True))
    total = weights.logsumexp(1, keepdim=True)
    # log(total - weight); one item may have nearly all of the total.
    rest = total + torch.log1p(-(weights - total).exp_().clamp_max_(1 - 1e-6))
    logits = weights.sub_(rest).add_(math.log(positives))
    n, others = int(right.sum()), int((~right).sum())
    of_right = float(logits[right].sum(dtype=torch.float64))
    of_wrong = float(logits.sum(dtype=torch.float64)) - of_right
    expected = (n + 1) / (n + 2) * of_right + of_wrong / (others + 2)
    return float(torch.nn.functional.softplus(logits).sum(dtype=torch.float64)) - expected


def _most_likely(loss: Callable[[float], float]) -> float:
    """The scale of the least loss, by golden section on a logarithmic axis."""
    low, high = (math.log(end) for end in _SCALES)
    golden = (math.sqrt(5) - 1) / 2
    inner = [high - golden * (high - low), low + golden * (high - low)]
    values = [loss(math.exp(point)) for point in inner]
    while high - low > 0.01:
        if values[0] <= values[1]:
            high, inner[1], values[1] = inner[1], inner[0], values[0]
            inner[0] = high - golden * (high - low)
            values[0] = loss(math.exp(inner[0]))
        else:
            low, inner[0], values[0] = inner[0], inner[1], values[1]
            inner[1] = low + golden * (high - low)
            values[1] = loss(math.exp(inner[1]))
    return math.exp((low + high) / 2)


@lru_cache(maxsize=1024)
def _tail(steepness: float, candidates: int) -> float:
    """What all items below the 10th of so many weigh together, in units of the 10th."""
    if candidates <= HEAD:
        return 0.0
    t = NormalDist().inv_cdf(1 - HEAD / candidates)
    # exp(a^2 / 2 - a t) Phi(t - a), without overflow for a large a
    argument = torch.tensor((steepness - t) / math.sqrt(2), dtype=torch.float64)
    below = math.exp(-t * t / 2) * float(torch.special.erfcx(argument)) / 2
    return min(candidates * below, float(candidates - HEAD))
