"""Where a query runs along each tune: at an even pace over all tunes, then freely along one.

Places of tunes and snippets of the query both come in time (or along the staff) at steps of one
length. A query at the tune's own pace passes one place a step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["PACES", "Lines", "best_lines", "follow", "votes"]

Floats = NDArray[np.float32]

PACES = tuple(float(pace) for pace in np.exp(np.linspace(-1, 1, 13) * np.log(1.27)))
"""From 0.79 to 1.27 places a step, 4% apart."""


@dataclass(frozen=True)
class Lines:
    """For each tune (n,) the line along which the query resembles it most.

    `score` is the mean similarity along it, `first` the place where the query's step 0 is, which
    can lie before the tune, and `pace` the number of places that it passes a step.
    """

    score: NDArray[np.float64]
    first: NDArray[np.int64]
    pace: NDArray[np.float64]


def votes(similarity: Floats, bounds: NDArray[np.int64]) -> NDArray[np.float64]:
    """For each tune the mean, over snippets, of the best similarity (q, n) among its places.

    Tune i has the places from bounds[i] to before bounds[i + 1].

    >>> votes(np.array([[0.0, 1.0, 0.5], [1.0, 0.0, 0.5]]), np.array([0, 2, 3])).tolist()
    [1.0, 0.5]
    """
    best = np.maximum.reduceat(similarity, bounds[:-1], axis=1)
    return np.asarray(best.mean(axis=0, dtype=np.float64))


def best_lines(
    similarity: Floats,
    bounds: NDArray[np.int64],
    steps: NDArray[np.floating],
    paces: tuple[float, ...] = PACES,
) -> Lines:
    """Lay the query along each tune in all ways, as `Lines`.

    `similarity` (q, n) and `bounds` are as in `votes`; `steps` (q,), rising, say when the query's
    snippets are. Where the query goes on beyond a tune, its similarity is 0.

    >>> similarity = np.array([[0, 1, 0, 0], [0, 0, 0, 1]], dtype=np.float32)
    >>> lines = best_lines(similarity, np.array([0, 4]), np.array([0, 2]), paces=(1.0,))
    >>> lines.score.tolist(), lines.first.tolist()
    ([1.0], [1])
    """
    shifts = [np.rint(steps * pace).astype(np.int64) for pace in paces]
    span = int(max(shift[-1] for shift in shifts))
    tunes, (queries, places) = len(bounds) - 1, similarity.shape
    # As many empty places before and behind each tune as the query is long, so that all of them
    # can be tried at once and none runs into the next.
    own = np.repeat(np.arange(tunes), np.diff(bounds))
    width = places + (tunes + 1) * span
    wide = np.zeros((queries, width), dtype=np.float32)
    wide[:, np.arange(places) + (own + 1) * span] = similarity
    starts = bounds[:-1] + np.arange(tunes) * span
    score = np.full(tunes, -np.inf)
    first, pace_of = np.zeros(tunes, dtype=np.int64), np.ones(tunes)
    for pace, shift in zip(paces, shifts, strict=True):
        total = np.zeros(width - span, dtype=np.float32)
        for row, by in zip(wide, shift.tolist(), strict=True):
            total += row[by : by + len(total)]
        best = np.maximum.reduceat(total, starts) / queries
        better = best > score
        for tune in np.flatnonzero(better).tolist():
            end = starts[tune + 1] if tune + 1 < tunes else len(total)
            first[tune] = int(total[starts[tune] : end].argmax()) - span
        score, pace_of = np.where(better, best, score), np.where(better, pace, pace_of)
    return Lines(score, first, pace_of)


def follow(
    similarity: Floats, steps: NDArray[np.floating], first: float, pace: float, *, band: int = 3
) -> NDArray[np.int64]:
    """The best way along one tune that never turns back, near a line.

    Of all ways with `similarity` (q, n) that stay within `band` places of the line, the one whose
    similarity, less a little for every place by which it changes its distance from the line, is
    largest: the place (q,) of each snippet.

    >>> similarity = np.eye(4, 5, dtype=np.float32)
    >>> follow(similarity, np.arange(4), first=1, pace=0.8).tolist()
    [0, 1, 2, 3]
    """
    queries, places = similarity.shape
    line = np.rint(first + steps * pace).astype(np.int64)
    offsets = np.arange(-band, band + 1)
    at = line[:, None] + offsets
    inside = (at >= 0) & (at < places)
    values = np.where(inside, similarity[np.arange(queries)[:, None], at.clip(0, places - 1)], 0.0)
    change = np.abs(offsets[:, None] - offsets[None, :])
    total = values[0]
    came_from = np.zeros((queries, len(offsets)), dtype=np.int64)
    for row in range(1, queries):
        forward = at[row][None, :] >= at[row - 1][:, None]
        options = np.where(forward, total[:, None] - _BEND * change, -np.inf)
        came_from[row] = options.argmax(axis=0)
        total = options.max(axis=0) + values[row]
    way = [int(total.argmax())]
    for row in range(queries - 1, 0, -1):
        way.append(int(came_from[row, way[-1]]))
    path = at[np.arange(queries), way[::-1]]
    return np.asarray(path.clip(0, places - 1))


# What a way pays for each place by which it leaves its line or comes back to it.
_BEND = 0.1
