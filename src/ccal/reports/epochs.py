"""The epochs of a run, as its metrics.jsonl tells them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccal.errors import InputError

__all__ = [
    "SCORES",
    "Floats",
    "Record",
    "Stages",
    "best_epoch",
    "by_stage",
    "column",
    "numbers",
    "scores",
]

Floats = NDArray[np.float64]
Record = Mapping[str, Any]
Stages = Mapping[str, Sequence[Record]]

SCORES = ("mrr_x_to_y", "mrr_y_to_x")
"""Validation MRR of both directions: a share in the records, in % from here on."""


def by_stage(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Records by stage, in the order of their epochs.

    An epoch that is there twice, as after a resumed run, counts as it was the last time; a record
    without an epoch is left out.
    """
    found: dict[str, dict[int, Record]] = {}
    for record in records:
        epoch = record.get("epoch")
        if epoch is None:
            continue
        if isinstance(epoch, bool) or not isinstance(epoch, int | np.integer):
            raise InputError(f"epoch must be a whole number, got {epoch!r} in {dict(record)!r}.")
        found.setdefault(str(record.get("stage", "train")), {})[int(epoch)] = record
    return {stage: [epochs[epoch] for epoch in sorted(epochs)] for stage, epochs in found.items()}


def scores(stages: Stages) -> tuple[str, ...]:
    """What decided: the score of the classes, in %, if one was recorded, else both MRR."""
    scored = any(np.isfinite(column(records, "score")).any() for records in stages.values())
    return ("score",) if scored else SCORES


def numbers(records: Sequence[Record]) -> Floats:
    """The number of each epoch."""
    return np.array([float(record["epoch"]) for record in records])


def column(records: Sequence[Record], name: str) -> Floats:
    """What the records hold under `name`, MRR in %; NaN where it is missing, None or not finite.

    >>> column([{"epoch": 0, "loss": None}, {"epoch": 1, "loss": 2.5, "mrr_x_to_y": 0.25}], "loss")
    array([nan, 2.5])
    """
    values = np.array([_number(record.get(name), name) for record in records])
    if name not in SCORES:
        return values
    wrong = values[(values < 0) | (values > 1)]
    if len(wrong):
        raise InputError(f"{name} must be a share between 0 and 1, got {wrong[0]:g}.")
    return 100 * values


def best_epoch(stages: Stages) -> tuple[str, int] | None:
    """Stage and epoch of the highest validation score or MRR, both directions averaged, or None.

    Of equals it is the last, as in training.

    >>> best_epoch(by_stage([{"stage": "train", "epoch": e, "mrr_x_to_y": m, "mrr_y_to_x": m}
    ...                      for e, m in enumerate([0.1, 0.3, float("nan"), 0.2])]))
    ('train', 1)
    """
    best: tuple[int, float] = (0, 0.0)
    place = None
    for stage, records in stages.items():
        pairs = np.stack([column(records, name) for name in scores(stages)], axis=1)
        for record, pair in zip(records, pairs, strict=True):
            known = pair[np.isfinite(pair)]
            # One direction alone does not compare with the mean of two.
            if len(known) and (score := (len(known), float(known.mean()))) >= best:
                best, place = score, (stage, int(record["epoch"]))
    return place


def _number(value: Any, name: str) -> float:
    if value is None:
        return nan
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be a number or null, got {value!r}.") from error
    return number if isfinite(number) else nan
