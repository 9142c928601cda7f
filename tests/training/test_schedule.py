from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccal.training.schedule import Schedule
from ccal.training.settings import Settings

SCORES = st.lists(
    st.one_of(st.none(), st.just(math.nan), st.integers(0, 10).map(lambda v: v / 10)),
    min_size=1,
    max_size=60,
)


def make(**changes: Any) -> Schedule:
    options: dict[str, Any] = {
        "max_epochs": 100,
        "patience": 3,
        "refine_patience": 2,
        "refinements": 2,
        **changes,
    }
    return Schedule(initial_rate=1.0, **options)


def test_the_paper() -> None:
    schedule = Schedule.of(Settings.preset("paper"))
    schedule.update(0.5)
    verdicts = [schedule.update(0.4) for _ in range(80)]
    assert [n for n, v in enumerate(verdicts, start=1) if v == "refine"] == [50, 60, 70]
    assert verdicts[-1] == "stop"
    assert schedule.learning_rate == pytest.approx(1e-6)
    assert schedule.best_epoch == 1


def test_equal_counts_as_improvement() -> None:
    schedule = make()
    assert [schedule.update(0.5) for _ in range(5)] == ["best"] * 5
    assert schedule.best_epoch == 5


def test_better_scores_renew_patience() -> None:
    schedule = make()
    verdicts = [schedule.update(score) for score in (0.5, 0.4, 0.4, 0.6, 0.5, 0.5, 0.5)]
    assert verdicts == ["best", "wait", "wait", "best", "wait", "wait", "refine"]
    assert schedule.learning_rate == 0.1


def test_a_candidate_behind_its_rival_has_half_the_patience() -> None:
    behind, ahead = make(patience=4, rival=0.6), make(patience=4, rival=0.6)
    assert [behind.update(s) for s in (0.5, 0.4, 0.4)] == ["best", "wait", "refine"]
    assert [ahead.update(s) for s in (0.7, 0.4, 0.4, 0.4)] == ["best", "wait", "wait", "wait"]


@pytest.mark.parametrize("score", [None, math.nan, math.inf, -math.inf])
def test_an_epoch_that_diverged_ends_patience(score: float | None) -> None:
    schedule = make(refinements=1)
    assert [schedule.update(s) for s in (0.5, score, score)] == ["best", "refine", "stop"]
    assert (schedule.best, schedule.best_epoch) == (0.5, 1)


def test_divergence_from_the_start_leaves_no_best() -> None:
    schedule = make(refinements=0)
    assert schedule.update(None) == "stop"
    assert schedule.finished
    assert schedule.best is None


def test_the_given_weights_may_stay_the_best() -> None:
    schedule = make(refinements=0)
    schedule.start(0.7)
    assert [schedule.update(0.6) for _ in range(3)] == ["wait", "wait", "stop"]
    assert (schedule.best, schedule.best_epoch) == (0.7, 0)


def test_no_more_than_max_epochs() -> None:
    schedule = make(max_epochs=2)
    assert [schedule.update(s) for s in (0.1, 0.2)] == ["best", "best"]
    assert schedule.finished


@given(scores=SCORES, cut=st.integers(0, 60))
def test_invariants_and_resuming(scores: list[float | None], cut: int) -> None:
    schedule, verdicts, usable = make(max_epochs=50), [], []
    for number, score in enumerate(scores):
        if schedule.finished:
            break
        if number == cut:
            copy = make(max_epochs=50)
            copy.load_state_dict(schedule.state_dict())
            schedule = copy
        verdicts.append(schedule.update(score))
        usable += [] if score is None or math.isnan(score) else [score]
    unbroken = make(max_epochs=50)
    assert [unbroken.update(score) for score in scores[: len(verdicts)]] == verdicts
    assert unbroken == schedule
    assert schedule.best == (max(usable) if usable else None)
    assert schedule.refined == verdicts.count("refine") <= 2
    assert schedule.learning_rate == pytest.approx(10.0**-schedule.refined)
    assert verdicts.count("stop") <= 1
    assert "stop" not in verdicts[:-1]
    if schedule.best_epoch:
        assert scores[schedule.best_epoch - 1] == schedule.best
        assert verdicts[schedule.best_epoch - 1] == "best"
    assert schedule.finished == (schedule.stopped or len(verdicts) == 50)
