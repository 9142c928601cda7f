"""`PairedTest`: is one method better than another on the same queries?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import torch
from torch import Tensor

from ccal.errors import InputError
from ccal.evaluation import Ties
from ccal.evaluation.significance import holm, query_intervals, randomisation_test
from ccal.numbering import Integers

DRAWS, LEVEL = 10_000, 0.05
"""Draws of the randomisation test, and the largest p-value of a clear difference."""


@dataclass(frozen=True)
class PairedTest:
    """Whether `one` beats `other`: their difference in points, and how likely chance makes it.

    `p` is that of the paired randomisation test over test queries (over classes for AP@k), `p_holm`
    the same after Holm's correction for all pairs of methods in this direction. `low` to `high` is
    the 95% bootstrap interval of the difference over the same queries.
    """

    measure: str
    direction: str
    one: str
    other: str
    difference: float
    p: float
    p_holm: float
    low: float
    high: float

    def seen_from(self, method: str) -> PairedTest:
        """The same test with this method as `one`."""
        if method == self.one:
            return self
        turned = replace(self, difference=-self.difference, low=-self.high, high=-self.low)
        return replace(turned, one=self.other, other=self.one)


def paired_tests(
    measure: str,
    direction: str,
    scores: Mapping[str, Tensor],
    units: Integers | None,
    ties: Mapping[str, set[Ties]],
) -> list[PairedTest]:
    """Every pair of methods by their scores, one a query, if both have the same rule for ties."""
    pairs = [
        (one, other)
        for one, other in combinations(scores, 2)
        if len(ties.get(one, set()) | ties.get(other, set())) <= 1
    ]
    if not pairs:
        return []
    if len({len(values) for values in scores.values()}) > 1:
        raise InputError("Methods can be compared on the same queries only.")
    found = torch.stack([scores[one] - scores[other] for one, other in pairs], 1)
    p = randomisation_test(found, units, draws=DRAWS)
    columns = (found.mean(0), p, holm(p), *query_intervals(found, units))
    return [
        PairedTest(measure, direction, one, other, *map(float, numbers))
        for (one, other), *numbers in zip(pairs, *columns, strict=True)
    ]


def tests_as_cells(tests: Sequence[PairedTest]) -> list[list[str]]:
    """A table of tests, below its header."""
    head = ["measure", "direction", "method", "against", "difference", "95% interval"]
    return [
        [*head, "p", "p (Holm)"],
        *(
            [
                *(test.measure, test.direction, test.one, test.other, f"{test.difference:+.1f}"),
                f"[{test.low:+.1f}, {test.high:+.1f}]",
                *(f"{test.p:.4f}", f"{test.p_holm:.4f}"),
            ]
            for test in tests
        ),
    ]
