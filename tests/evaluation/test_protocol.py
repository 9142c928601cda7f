"""Ranks in both directions, measures and intervals, against slow references."""

from __future__ import annotations

import json
import statistics
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ccal.errors import InputError
from ccal.evaluation import Measures, Ties, evaluate_embeddings, two_way_ranks
from ccal.evaluation.measures import LABELS, MEANINGS, _medians, bootstrap_intervals
from ccal.ranks import counterpart_ranks
from tests.evaluation import naive


@given(st.lists(st.integers(1, 40), min_size=1, max_size=50))
def test_measures_by_their_definitions(ranks: list[int]) -> None:
    found, n = Measures.of(torch.tensor(ranks)), len(ranks)
    for k, value in ((1, found.r1), (5, found.r5), (10, found.r10)):
        assert value == pytest.approx(100 * sum(r <= k for r in ranks) / n)
    assert found.mr == statistics.median(ranks)
    assert found.mrr == pytest.approx(100 * sum(1 / r for r in ranks) / n)
    assert found.mean_rank == pytest.approx(sum(ranks) / n)


def test_ranks_that_are_none_are_refused() -> None:
    for ranks in (torch.tensor([]), torch.tensor([0, 1]), torch.ones(2, 2)):
        with pytest.raises(InputError, match="ranks must be"):
            Measures.of(ranks)


def test_the_report_holds_both_directions() -> None:
    x, y, groups = naive.captions(30, 90, 4)
    report = evaluate_embeddings(x, y, groups=groups, bootstrap=200, names=("image", "text"))
    forth, back = naive.ranks(x, y, groups.tolist())
    assert report.x_to_y.measures == Measures.of(torch.tensor(forth))
    assert report.y_to_x.measures == Measures.of(torch.tensor(back))
    text = str(report)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["image", "->", "text", "text", "->", "image"]
    explained = [f"{LABELS[name]:<10}  {MEANINGS[name]}" for name in LABELS]
    assert all(line.startswith(start) for line, start in zip(lines[1:7], explained, strict=True))
    assert lines[7].split() == ["queries", "30", "90"]
    assert lines[8].split()[-2:] == ["90", "30"]
    assert "optimistic ties" in lines[-1]
    for d in (report.x_to_y, report.y_to_x):
        assert d.low is not None
        assert d.high is not None
        assert f"{d.measures.mrr:.1f} [{d.low.mrr:.1f}, {d.high.mrr:.1f}]" in text
        for name, value in d.measures.as_dict().items():
            assert getattr(d.low, name) <= value <= getattr(d.high, name)
    numbers = json.loads(json.dumps(report.as_dict()))
    assert numbers["y_to_x"]["queries"] == numbers["x_to_y"]["candidates"] == 90
    assert numbers["x_to_y"]["low"]["mrr"] == report.x_to_y.low.mrr  # type: ignore[union-attr]


def test_the_seed_decides_the_intervals() -> None:
    x, y, groups = naive.captions(30, 90, 4)
    a, b, c = (evaluate_embeddings(x, y, groups=groups, bootstrap=50, seed=s) for s in (1, 1, 2))
    assert a.as_dict() == b.as_dict() != c.as_dict()
    assert a.x_to_y.measures == c.x_to_y.measures


def test_too_few_draws_are_refused() -> None:
    for draws in (-1, 1):
        with pytest.raises(InputError, match="bootstrap must be 0"):
            evaluate_embeddings(torch.eye(2), torch.eye(2), bootstrap=draws)


@pytest.mark.parametrize("far", [False, True])
def test_weighted_medians_equal_those_of_the_drawn_ranks(far: bool) -> None:
    rng = np.random.default_rng(0)
    unit = np.concatenate((np.arange(200), rng.integers(200, size=301)))
    ranks = rng.integers(1, 90, size=501)
    weights = rng.multinomial(200, np.full(200, 1 / 200), size=30).astype(float)
    if far:  # all weight on the unit of the best rank: outside of the first window
        unit, ranks = np.arange(200_000) % 200, np.arange(200_000)
        weights = np.zeros((2, 200))
        weights[0, 0] = weights[1, 199] = 1.0
        ranks = np.where(unit == 0, 1, np.where(unit == 199, 10**6, ranks + 2))
    sizes = weights @ np.bincount(unit)
    found = _medians(weights, ranks, unit, sizes.astype(np.float64))
    drawn = [np.median(np.repeat(ranks, w[unit].astype(int))) for w in weights]
    assert found.tolist() == drawn


def test_intervals_equal_those_of_a_plain_bootstrap() -> None:
    rng = np.random.default_rng(1)
    ranks = rng.geometric(0.1, size=300)
    low, high = bootstrap_intervals([(ranks, np.arange(300))], draws=4000, seed=0)[0]
    plain = [Measures.of(rng.choice(ranks, 300)) for _ in range(4000)]
    for name in low.as_dict():
        values = [getattr(m, name) for m in plain]
        ends = np.percentile(values, (2.5, 97.5))
        # The ends of R@k lie on a grid of one query in 300, a third of a percent.
        step = 0.34 if name in ("r1", "r5", "r10") else 1e-9
        tolerance = 0.15 * float(np.std(values)) + step
        assert abs(getattr(low, name) - ends[0]) < tolerance, name
        assert abs(getattr(high, name) - ends[1]) < tolerance, name


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    rng = np.random.default_rng(2)
    covered = np.zeros(3)
    for trial in range(300):
        ranks = rng.geometric(0.2, size=150)
        low, high = bootstrap_intervals([(ranks, np.arange(150))], draws=300, seed=trial)[0]
        truth = {"r1": 20.0, "r5": 100 * (1 - 0.8**5), "mean_rank": 5.0}
        covered += [getattr(low, n) <= t <= getattr(high, n) for n, t in truth.items()]
    # The standard error of a coverage of .95 is .013 in 300 trials.
    assert bool((covered / 300 > 0.90).all())
    assert bool((covered / 300 < 0.99).all())


def test_queries_of_one_unit_are_drawn_together() -> None:
    rng = np.random.default_rng(3)
    ranks = rng.geometric(0.1, size=200)
    alone = bootstrap_intervals([(ranks, np.arange(200))], draws=1000, seed=0)[0]
    # Five copies of each query bring no knowledge, so the intervals stay.
    copies = bootstrap_intervals(
        [(np.repeat(ranks, 5), np.repeat(np.arange(200), 5))], draws=1000, seed=0
    )[0]
    for one, five in zip(alone, copies, strict=True):
        assert five.as_dict() == pytest.approx(one.as_dict())


def test_agrees_with_ranx() -> None:
    ranx = pytest.importorskip("ranx")
    x, y, groups = naive.captions(40, 80, 4)
    report = evaluate_embeddings(x, y, groups=groups, bootstrap=0)
    scores = naive.cosines(x, y)
    run = {f"x{i}": {f"y{j}": s for j, s in enumerate(row)} for i, row in enumerate(scores)}
    truth: dict[str, dict[str, int]] = {}
    for j, i in enumerate(groups.tolist()):
        truth.setdefault(f"x{i}", {})[f"y{j}"] = 1
    names = ["mrr", "hit_rate@1", "hit_rate@5", "hit_rate@10"]
    expected = ranx.evaluate(ranx.Qrels(truth), ranx.Run(run), names)
    m = report.x_to_y.measures
    found = (m.mrr, m.r1, m.r5, m.r10)
    # Without the other right candidates a rank is that of the first right one: the same.
    assert found == pytest.approx([100 * expected[name] for name in names])


def test_agrees_with_torchmetrics() -> None:
    retrieval = pytest.importorskip("torchmetrics.retrieval")
    x, y, groups = naive.captions(40, 80, 4)
    report = evaluate_embeddings(x, y, groups=groups, bootstrap=0)
    # torchmetrics takes right candidates with scores <= 0 for misses.
    scores = torch.tensor(naive.cosines(x, y)).mT + 2
    right = torch.nn.functional.one_hot(groups).bool()
    query = torch.arange(80)[:, None].expand(80, 40)
    given_scores = (scores.flatten(), right.flatten(), query.flatten())
    m = report.y_to_x.measures
    assert 100 * retrieval.RetrievalMRR()(*given_scores).item() == pytest.approx(m.mrr, rel=1e-5)
    for k, value in ((1, m.r1), (5, m.r5), (10, m.r10)):
        hit = retrieval.RetrievalHitRate(top_k=k)(*given_scores).item()
        assert 100 * hit == pytest.approx(value, rel=1e-5)


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 20),
    extra=st.integers(0, 30),
    k=st.integers(1, 6),
    seed=st.integers(0, 10_000),
    block=st.tuples(st.integers(1, 30), st.integers(1, 40)),
    ties=st.sampled_from(["optimistic", "pessimistic"]),
    whole=st.booleans(),
)
def test_equals_the_double_loop(
    n: int, extra: int, k: int, seed: int, block: tuple[int, int], ties: Ties, whole: bool
) -> None:
    x, y, groups = naive.captions(n, n + extra, k, seed)
    if whole:  # small integers: many exact ties, and zero rows
        x, y = x.round().clamp(-1, 1), y.round().clamp(-1, 1)
    with patch("ccal.ranks.BLOCK", block):
        forth, back = two_way_ranks(x, y, groups=groups, ties=ties)
    expected = naive.ranks(x, y, groups.tolist(), pessimistic=ties == "pessimistic", close=1.7e-15)
    assert (forth.tolist(), back.tolist()) == expected


def test_full_blocks_do_not_overflow() -> None:
    x = torch.ones(600, 2)
    x[0] = torch.tensor([1.0, -1.0])
    y = torch.ones(5000, 2)
    groups = torch.arange(5000) % 600
    y[groups == 0] *= -1  # the counterparts of row 0 are last, by far
    forth, back = two_way_ranks(x, y, groups=groups, ties="pessimistic")
    own = torch.bincount(groups)
    others = torch.bincount(groups)[0]
    assert forth[1:].tolist() == (1 + 5000 - own[1:] - others).tolist()
    assert forth[0] == 5000 - own[0] + 1
    assert back[groups == 0].unique().tolist() == [1]
    assert back[groups != 0].unique().tolist() == [599]


def test_pairs_agree_with_counterpart_ranks() -> None:
    x = torch.randn(300, 8).double()
    y = x + 2 * torch.randn(300, 8).double()
    for found, expected in zip(two_way_ranks(x, y), counterpart_ranks(x, y), strict=True):
        assert torch.equal(found, expected)


def test_collapsed_embeddings_are_first_or_last() -> None:
    x, y = torch.rand(1, 64).expand(700, 64), torch.rand(1, 64).expand(700, 64)
    for ties, rank in (("optimistic", 1), ("pessimistic", 700)):
        both = two_way_ranks(x, y, ties=ties)  # type: ignore[arg-type]
        assert [r.unique().tolist() for r in both] == [[rank], [rank]]


def test_arrays_and_mixed_dtypes_are_taken() -> None:
    x, y, groups = naive.captions(10, 20, 4)
    expected = two_way_ranks(x, y.float().double(), groups=groups)
    found = two_way_ranks(x.numpy(), y.float(), groups=groups.int().numpy())
    assert all(map(torch.equal, expected, found))


@pytest.mark.parametrize(
    ("x", "y", "groups", "message"),
    [
        (torch.ones(3, 2), torch.ones(3, 4), None, "x has 2 columns and y has 4"),
        (torch.ones(3, 2), torch.ones(4, 2), None, "x has 3 rows and y has 4.*Pass groups"),
        (torch.ones(0, 2), torch.ones(0, 2), None, r"x must be a matrix.*\(0, 2\)"),
        (torch.ones(3), torch.ones(3), None, "x must be a matrix"),
        (torch.ones(2, 2), torch.ones(2, 2) * torch.nan, None, "y has NaN .* 2 of 2 rows"),
        (torch.ones(2, 2), torch.ones(3, 2), [0, 1, 2], "0 to 1, but they run from 0 to 2"),
        (torch.ones(2, 2), torch.ones(3, 2), [0, -1, 1], "from -1 to 1"),
        (torch.ones(3, 2), torch.ones(3, 2), [0, 0, 2], "1 of 3 rows of x have no .* row 1"),
        (torch.ones(3, 2), torch.ones(3, 2), [0, 1], "one entry for each of the 3 rows of y"),
        (torch.ones(2, 2), torch.ones(2, 2), [0.0, 1.0], "groups must be integers"),
        (torch.ones(2, 2, dtype=torch.bool), torch.ones(2, 2), None, "x must hold real numbers"),
    ],
)
def test_bad_input_is_refused(
    x: torch.Tensor, y: torch.Tensor, groups: list[int] | None, message: str
) -> None:
    given_groups = None if groups is None else torch.tensor(groups)
    with pytest.raises(InputError, match=message):
        two_way_ranks(x, y, groups=given_groups)


def test_bad_settings_are_refused() -> None:
    x = torch.ones(2, 2)
    with pytest.raises(InputError, match="ties must be"):
        two_way_ranks(x, x, ties="random")  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dim", [32, 512, 4096])
def test_duplicates_tie_however_wide(dim: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, dim, generator=generator, dtype=dtype)
    y = x + 0.1 * torch.randn(300, dim, generator=generator, dtype=dtype)
    x, y = x.repeat(2, 1), y.repeat(2, 1)
    for way in two_way_ranks(x, y):
        assert way.eq(1).all()
    for way in two_way_ranks(x, y, ties="pessimistic"):
        assert way.eq(2).all()
    assert counterpart_ranks(x, y)[0].eq(1).all()
    assert counterpart_ranks(x, y, pessimistic=True)[0].eq(2).all()


def test_reversed_and_foreign_arrays_are_taken() -> None:
    x = np.random.default_rng(0).normal(size=(20, 4))
    assert two_way_ranks(x[::-1], x[::-1].astype(">f8"))[0].eq(1).all()
