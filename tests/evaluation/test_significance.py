"""Intervals and paired tests, against enumeration, scipy and what must come out."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy import stats

from ccal.errors import InputError
from ccal.evaluation.significance import half_interval, holm, query_intervals, randomisation_test


def test_half_intervals_are_those_of_students_t() -> None:
    for n in (2, 3, 5, 21, 22, 40):
        values = [float(i % 7) for i in range(n)]
        low, high = stats.t.interval(0.95, n - 1, sum(values) / n, stats.sem(values))
        assert half_interval(values) == pytest.approx((high - low) / 2, rel=5e-3)
    with pytest.raises(InputError, match="at least 2 values, got 1"):
        half_interval([1.0])


def enumerated(differences: list[float]) -> float:
    """The share of all ways to flip signs whose sum is at least as far from 0."""
    observed = abs(sum(differences))
    sums = [
        abs(sum(s * d for s, d in zip(signs, differences, strict=True)))
        for signs in product((-1, 1), repeat=len(differences))
    ]
    return sum(value >= observed - 1e-12 for value in sums) / len(sums)


@pytest.mark.parametrize("n", [1, 2, 5, 10])
def test_few_queries_are_enumerated(n: int) -> None:
    found = np.random.default_rng(n).normal(0.3, 1, size=(n, 3))
    expected = [enumerated(column.tolist()) for column in found.T]
    assert randomisation_test(found) == pytest.approx(expected)


def test_drawn_signs_come_near_all_of_them() -> None:
    found = np.random.default_rng(0).normal(0.4, 1, size=(12, 1))
    exact, drawn = (randomisation_test(found, draws=d)[0] for d in (4096, 4095))
    assert exact != drawn
    assert drawn == pytest.approx(exact, abs=0.03)


def test_units_flip_together() -> None:
    found = np.random.default_rng(1).normal(0.2, 1, size=(20, 2))
    units = np.arange(20) % 5
    sums = np.stack([found[units == unit].sum(0) for unit in range(5)])
    assert randomisation_test(found, units).tolist() == randomisation_test(sums).tolist()
    # Copies of a query are no new evidence.
    once, again = found[:5], np.repeat(found[:5], 4, axis=0)
    same = randomisation_test(again, np.repeat(np.arange(5), 4))
    assert same == pytest.approx(randomisation_test(once))


def test_query_intervals_are_those_of_the_bootstrap() -> None:
    scores = np.random.default_rng(3).normal(size=(200, 2))
    for column, low, high in zip(scores.T, *query_intervals(scores, draws=4000), strict=True):
        found = stats.bootstrap((column,), np.mean, n_resamples=4000, method="percentile", rng=0)
        assert [low, high] == pytest.approx(list(found.confidence_interval), abs=0.01)
    # Copies of a query are no new evidence, and a unit of two queries counts twice.
    again = query_intervals(np.repeat(scores, 4, axis=0), np.repeat(np.arange(200), 4))
    assert np.allclose(again, query_intervals(scores))
    low, high = query_intervals([[0.0], [0.0], [3.0]], [0, 0, 1])
    assert (low[0], high[0]) == (0, 3)
    with pytest.raises(InputError, match=r"scores must be a finite matrix"):
        query_intervals([1.0, 2.0])


def test_p_values_hold_their_level() -> None:
    noise = np.random.default_rng(2).normal(size=(40, 400))
    p = randomisation_test(noise, draws=999)
    assert (p <= 0.05).mean() == pytest.approx(0.05, abs=0.03)
    assert bool((randomisation_test(noise + 2, draws=999) == 1 / 1000).all())
    assert randomisation_test(noise, draws=999).tolist() == p.tolist()


def test_equal_methods_do_not_differ() -> None:
    assert randomisation_test(np.zeros((30, 2))).tolist() == [1.0, 1.0]


def test_holm_is_steps_of_bonferroni() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]).tolist() == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.5]).tolist() == [1.0, 1.0]
    assert holm([]).tolist() == []


@pytest.mark.parametrize(
    ("differences", "units", "message"),
    [
        ([0.1, 0.2], None, r"matrix \(queries, comparisons\), got shape \(2,\)"),
        ([[np.nan]], None, "finite matrix"),
        ([[0.1], [0.2]], [0], r"units must have shape \(2,\), got \(1,\)"),
    ],
)
def test_bad_input(differences: list[float], units: list[int] | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        randomisation_test(differences, units)
