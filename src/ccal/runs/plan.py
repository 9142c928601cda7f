"""The plan of a command in words, printed before it starts: pairs, split, method, time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ccal.columns import align
from ccal.data import Data, Source
from ccal.optional import install_command
from ccal.progress import about
from ccal.runs.folder import Run, stages
from ccal.training.plan import (
    features_in_words,
    lacks_sentences,
    machine_in_words,
    method_in_words,
    network_seconds,
)
from ccal.training.progress import STEP_OF_STAGE
from ccal.training.refined import expected_steps
from ccal.training.settings import Settings

_EVALUATION, _REPORT = 2.0, 6.0  # seconds
_SENTENCES = (
    f"{install_command('sentences')} joins sentence embeddings to TF-IDF, which finds more "
    "(docs/results/flickr8k.md)"
)


def expected_times(settings: Settings, data: Data, *, report: bool) -> dict[str, float]:
    """A guess of the seconds of each step of a run, by its name and in their order."""
    seconds = expected_steps(settings, data.part("train"), data.part("valid"))
    train, test = data.part("train"), data.part("test")
    features = sum(network_seconds(settings, train, test, name) for name in test.names)
    seconds["evaluation"] = _EVALUATION + features
    return {**seconds, "report": _REPORT} if report else seconds


def plan_of_run(run: Run, data: Data, expected: Mapping[str, float], *, resume: bool) -> list[str]:
    """Lines about the run that `ccal train` begins, or goes on with."""
    lines = {**_data_lines(run.source, data, run.settings), "Method": method_in_words(run.settings)}
    time = f"{about(sum(expected.values()))}, a guess from sizes; {machine_in_words()}"
    if resume:
        done = stages(run.metrics())
        last = next(reversed(done)) if done else None
        lines["Goes on"] = (
            "from the start, since no epoch was finished"
            if last is None
            else f"after epoch {done[last]['epochs']} of {STEP_OF_STAGE.get(last, last)}"
        )
        time += ", less what was done before"
    lines |= {"Time": time, "Results": str(run.path)}
    return align(list(lines.items()), left=(0, 1))


def plan_of_comparison(
    source: Source, data: Data, plans: Sequence[Settings], folder: Path
) -> list[str]:
    """Lines about the runs that `ccal compare` begins, or goes on with."""
    methods = list(dict.fromkeys(plan.method for plan in plans))
    seeds = len(plans) // len(methods)
    seconds = sum(sum(expected_times(plan, data, report=False).values()) for plan in plans)
    runs = f"{len(plans)}: {', '.join(methods)}, each with {seeds} seed{'' if seeds == 1 else 's'}"
    lines = {
        **_data_lines(source, data, plans[0]),
        "Runs": f"{runs}; those that have finished are not repeated",
        "Time": f"{about(seconds + _REPORT)} for all, a guess from sizes; {machine_in_words()}",
        "Results": str(folder),
    }
    return align(list(lines.items()), left=(0, 1))


def _data_lines(source: Source, data: Data, settings: Settings) -> dict[str, str]:
    names = " and ".join(data.pairs.names)
    files = [Path(source.table).name] if source.table else []
    files += [Path(view.file).name for view in source.views if view.file is not None]
    split = data.split
    return {
        "Pairs": f"{len(data.pairs):,} of {names}, from {' and '.join(files)}",
        "Split": f"{len(split.train):,} to train on, {len(split.valid):,} to validate, "
        f"{len(split.test):,} to test; {_rule(source, data)}",
        "Features": features_in_words(settings, data.part("train")),
        **({"Hint": _SENTENCES} if lacks_sentences(settings, data.pairs) else {}),
    }


def _rule(source: Source, data: Data) -> str:
    """How the pairs were split."""
    if source.split_column is not None:
        return f"as column {source.split_column} says"
    if data.listed:
        return "as published"
    labelled = source.layout is not None and data.pairs.label is not None
    by = source.split_by or ("label" if labelled else None)
    if by == "label":
        return f"by {source.label or 'class'}, so that test classes are unseen"
    if by != "random" and data.pairs.group is not None:
        return "at random, groups kept whole"
    pairs = data.pairs
    if source.allow_leaks or all(len(np.unique(pairs.items(n))) == len(pairs) for n in pairs.names):
        return "at random"
    return "at random, rows of one item kept together"
