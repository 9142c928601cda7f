"""`Row`: one method of a comparison in one direction, with its means over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor

from ccal.evaluation import ClassReport, Direction, Ties
from ccal.evaluation.significance import half_interval, query_intervals
from ccal.numbering import Integers
from ccal.runs.paired_tests import LEVEL, PairedTest

ENOUGH_SEEDS = 3  # for a standard deviation, or an interval by Student's t


@dataclass(frozen=True)
class Row:
    """One method in one direction: means over seeds.

    Attributes:
        half: half the 95% interval of the MRR.
        interval: its kind: "seeds" (training again), if there are three or more that differ, else
            "bootstrap" (other test queries).
        queries: half the 95% interval over queries. Seeds share their test queries, so the interval
            over seeds can be small where this one is large.
        ap: AP@k in % with one query a class, in the direction in which the classes are queries.
        ap_half: half its 95% interval over seeds, of three or more.
        ap_low: lower end of its 95% bootstrap interval over classes, of means over seeds.
        ap_high: its upper end.
        ap_alone: AP@k without averaging items over neighbours; None for methods that do not.
        ap_better_than: methods of clearly lower AP@k, by the paired test over classes.
        k: of AP@k.
        better_than: methods of clearly lower MRR in this direction, by the paired test.
        low: lower end of the 95% bootstrap interval of the MRR over queries, whose scores are means
            over seeds.
        high: its upper end.
        mrr_by_seed: the MRR of each seed.
        ap_by_seed: the AP@k of each seed.
        ties: how equal scores count.
        query_count: number of queries.
        candidates: number of candidates of each query.
    """

    method: str
    direction: str
    seeds: int
    mrr: float
    half: float
    interval: str
    queries: float
    r1: float
    r5: float
    r10: float
    mr: float
    ap: float | None
    ap_half: float | None
    ap_low: float | None
    ap_high: float | None
    ap_alone: float | None
    ap_better_than: tuple[str, ...]
    k: int | None
    better_than: tuple[str, ...]
    low: float
    high: float
    mrr_by_seed: tuple[float, ...]
    ap_by_seed: tuple[float, ...]
    ties: Ties
    query_count: int
    candidates: int


def make_row(
    method: str,
    seeds: Sequence[Direction],
    tests: Sequence[PairedTest],
    classes: Sequence[ClassReport],
    units: Integers | None,
    ties: Ties,
) -> Row:
    """The row of a method in a direction, from one `Direction` and, with labels, one report a seed.

    `tests` are those of all methods; `units` those of `query_intervals`.
    """
    scores = [seed.measures.mrr for seed in seeds]
    by_query = mean_over_seeds([100 / seed.ranks.double() for seed in seeds])
    low, high = (float(end) for (end,) in query_intervals(by_query[:, None], units))
    queries = (high - low) / 2
    # Seeds that agree to the last digit are no proof of certainty.
    over_seeds = len(scores) >= ENOUGH_SEEDS and len(set(scores)) > 1
    measures = [seed.measures for seed in seeds]
    aps = [seed.ap for seed in classes]
    name = seeds[0].name
    own = [t for t in tests if t.direction == name and t.p_holm < LEVEL]
    turned = [t.seen_from(method) for t in own if method in (t.one, t.other)]
    beaten = [t for t in turned if t.difference > 0]
    ap_low = ap_high = None
    if classes:
        by_class = mean_over_seeds([seed.precision for seed in classes])
        ap_low, ap_high = (float(end) for (end,) in query_intervals(by_class[:, None]))
    alone = [seed.ap_alone for seed in classes if seed.ap_alone is not None]
    return Row(
        method=method,
        direction=name,
        seeds=len(seeds),
        mrr=fmean(scores),
        half=half_interval(scores) if over_seeds else queries,
        interval="seeds" if over_seeds else "bootstrap",
        queries=queries,
        r1=fmean(m.r1 for m in measures),
        r5=fmean(m.r5 for m in measures),
        r10=fmean(m.r10 for m in measures),
        mr=fmean(m.mr for m in measures),
        ap=fmean(aps) if aps else None,
        ap_half=half_interval(aps) if len(aps) >= ENOUGH_SEEDS else None,
        ap_low=ap_low,
        ap_high=ap_high,
        ap_alone=fmean(alone) if alone else None,
        ap_better_than=tuple(t.other for t in beaten if t.measure != "MRR"),
        k=classes[0].k if aps else None,
        better_than=tuple(t.other for t in beaten if t.measure == "MRR"),
        low=low,
        high=high,
        mrr_by_seed=tuple(scores),
        ap_by_seed=tuple(aps),
        ties=ties,
        query_count=len(seeds[0].ranks),
        candidates=seeds[0].candidates,
    )


def mean_over_seeds(values: Sequence[Tensor]) -> Tensor:
    """The mean (n,) of one tensor (n,) a seed."""
    return torch.stack(list(values)).mean(0)
