"""`evaluate_embeddings`: how well two modalities find each other, in both directions."""

from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor

from ccal.bounds import Options, Whole, check
from ccal.columns import align
from ccal.evaluation.inputs import Array, positives_of, unit_pair
from ccal.evaluation.measures import LABELS, MEANINGS, Measures, bootstrap_intervals
from ccal.positives import Positives
from ccal.ranks import unit_ranks

Ties = Literal["optimistic", "pessimistic"]
"""Whether equal scores count for the right candidate, or against it."""
TIES_MEAN: dict[Ties, str] = {
    "optimistic": "Equal scores count in favour of the right candidate (optimistic ties).",
    "pessimistic": "Equal scores count against the right candidate (pessimistic ties).",
}
"""Rules for ties, for people."""


def two_way_ranks(
    x: Array, y: Array, *, groups: Array | Positives | None = None, ties: Ties = "optimistic"
) -> tuple[Tensor, Tensor]:
    """Ranks x -> y (n,) and y -> x (m,), int64, by cosine; 1 is best.

    `x` is (n, k) and `y` (m, k); `groups` (m,) names the row of x that each row of y belongs to
    (None: row i to row i), as with five captions an image; `Positives` join rows of x and y in any
    way. A query is ranked by the best of its right candidates, with the others left out (the VSE
    protocol).

    A rank is 1 + the number of wrong candidates that score better. Scores closer than 8 units of
    rounding (1e-6 in float32, 2e-15 in float64; more if k is above 64, see `ccal.ranks.rounding`)
    tie: "optimistic" ties favour the right candidate, "pessimistic" ones go against it. Scores are
    made and counted in blocks, so memory is O(n + m).

    >>> import torch
    >>> x = torch.eye(3)
    >>> two_way_ranks(x, x.repeat(2, 1), groups=torch.tensor([0, 1, 2, 1, 2, 0]))
    (tensor([1, 1, 1]), tensor([1, 1, 1, 2, 2, 2]))
    """
    return _ranks(x, y, groups, ties)[0]


def _ranks(
    x: Array, y: Array, groups: Array | Positives | None, ties: Ties
) -> tuple[tuple[Tensor, Tensor], Positives]:
    check("ties", ties, Options("optimistic", "pessimistic"))
    a, b = unit_pair(x, y)
    positives = positives_of(groups, a, b)
    ranks = unit_ranks(a, b, positives, pessimistic=ties == "pessimistic")
    return ranks, positives


@dataclass(frozen=True)
class Direction:
    """One direction of retrieval, such as image -> text.

    `measures` have the 95% interval `low` to `high`, if one was asked for. `ranks` (queries,) are
    int64 on the CPU, in the order of the queries.
    """

    name: str
    candidates: int
    measures: Measures
    low: Measures | None
    high: Measures | None
    ranks: Tensor = field(repr=False, compare=False)

    def as_dict(self) -> dict[str, object]:
        """Numbers and names only, ready for JSON."""
        return {
            "name": self.name,
            "queries": len(self.ranks),
            "candidates": self.candidates,
            **self.measures.as_dict(),
            "low": self.low and self.low.as_dict(),
            "high": self.high and self.high.as_dict(),
        }


@dataclass(frozen=True)
class Report:
    """Both directions; print it for a table."""

    x_to_y: Direction
    y_to_x: Direction
    ties: Ties
    draws: int

    def as_dict(self) -> dict[str, object]:
        """Numbers and names only, ready for JSON."""
        return {
            "x_to_y": self.x_to_y.as_dict(),
            "y_to_x": self.y_to_x.as_dict(),
            "ties": self.ties,
            "bootstrap": self.draws,
        }

    def __str__(self) -> str:
        labels = ["", *LABELS.values(), "queries", "candidates"]
        meanings = ["", *MEANINGS.values(), "", "of each query"]
        columns = [
            [d.name, *_cells(d), f"{len(d.ranks):,}", f"{d.candidates:,}"]
            for d in (self.x_to_y, self.y_to_x)
        ]
        lines = align(list(zip(labels, meanings, *columns, strict=True)), left=(0, 1))
        if self.draws:
            lines.append(
                f"In brackets: 95% intervals of {self.draws:,} bootstrap draws of queries."
            )
        return "\n".join([*lines, TIES_MEAN[self.ties]])


def evaluate_embeddings(
    x: Array,
    y: Array,
    *,
    groups: Array | Positives | None = None,
    ties: Ties = "optimistic",
    bootstrap: int = 1000,
    seed: int = 0,
    names: tuple[str, str] = ("x", "y"),
) -> Report:
    """How well the rows of `x` (n, k) find theirs in `y` (m, k) by cosine, and the reverse.

    `groups` and `ties` are those of `two_way_ranks`: with five captions an image, x is the images,
    y the captions, and groups the image of each caption. Intervals come from `bootstrap` draws of
    queries, those that share a counterpart together (0: no intervals); the same `seed` gives the
    same ones. `names` of the two modalities appear in the report.

    >>> import torch
    >>> x = torch.eye(20)
    >>> report = evaluate_embeddings(x, x.roll(1, 0), names=("image", "text"), bootstrap=0)
    >>> report.x_to_y.measures.r1, report.y_to_x.measures.r5
    (0.0, 100.0)
    >>> print(report)
                                            image -> text  text -> image
    R@1         % of queries: found first             0.0            0.0
    R@5         % found among the first 5           100.0          100.0
    R@10        % found among the first 10          100.0          100.0
    MR          median rank                           2.0            2.0
    MRR         mean of 1 / rank, in %               50.0           50.0
    mean        mean rank                             2.0            2.0
    queries                                            20             20
    candidates  of each query                          20             20
    Equal scores count in favour of the right candidate (optimistic ties).
    """
    check("bootstrap", bootstrap, Options(0), Whole(at_least=2))
    ranks, positives = _ranks(x, y, groups, ties)
    both = [way.cpu() for way in ranks]
    intervals: list[tuple[Measures | None, Measures | None]] = [(None, None), (None, None)]
    if bootstrap:
        units = positives.units()
        sampled = [(ranks.numpy(), unit) for ranks, unit in zip(both, units, strict=True)]
        intervals = [*bootstrap_intervals(sampled, draws=bootstrap, seed=seed)]
    titles = f"{names[0]} -> {names[1]}", f"{names[1]} -> {names[0]}"
    x_to_y, y_to_x = (
        Direction(title, len(others), Measures.of(ranks), *ends, ranks)
        for title, ranks, others, ends in zip(titles, both, both[::-1], intervals, strict=True)
    )
    return Report(x_to_y, y_to_x, ties, bootstrap)


def _cells(direction: Direction) -> list[str]:
    values = direction.measures.as_dict()
    if direction.low is None or direction.high is None:
        return [f"{value:.1f}" for value in values.values()]
    low, high = direction.low.as_dict(), direction.high.as_dict()
    return [f"{value:.1f} [{low[key]:.1f}, {high[key]:.1f}]" for key, value in values.items()]
