"""From the snippets of a query to ranked tunes: all tunes vote, the best are aligned.

Where a query runs along each tune: at an even pace over all tunes, then freely along one.

Places of tunes and snippets of the query both come in time (or along the staff) at steps of one
length. A query at the tune's own pace passes one place a step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "PACES",
    "Axis",
    "Lines",
    "Way",
    "best_lines",
    "find",
    "follow",
    "staff_axis",
    "time_axis",
    "votes",
]

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


# So many tunes, those with most votes, are laid along the query.
_CANDIDATES = 1500


@dataclass(frozen=True)
class Axis:
    """Places of all tunes at equal steps, of time or along the staff.

    `index` (m,) are rows of the places; tune i has those from bounds[i] to before bounds[i + 1].
    A `step` is that many frames, or columns.
    """

    index: NDArray[np.int64]
    bounds: NDArray[np.int64]
    step: float


@dataclass(frozen=True)
class Way:
    """A tune, its score, and which places (rows) which snippets of the query are at."""

    tune: int
    score: float
    snippets: NDArray[np.int64]
    places: NDArray[np.int64]


def time_axis(places: NDArray[Any], tunes: int) -> Axis:
    """Steps of time: the places as they are."""
    bounds = np.searchsorted(places["tune"], np.arange(tunes + 1))
    inside = np.diff(places["tune"]) == 0
    # The mean, since frames are whole numbers and steps are not.
    step = float(np.diff(places["frame"])[inside].mean()) if inside.any() else 1.0
    return Axis(np.arange(len(places)), bounds, step)


def staff_axis(places: NDArray[Any], tunes: int, step: float = 10.0) -> Axis:
    """Steps along the staff: for each the nearest place."""
    bounds = np.searchsorted(places["tune"], np.arange(tunes + 1))
    index = []
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        columns = places["column"][first:last].astype(np.float64)
        wanted = np.arange(columns[0], columns[-1] + step, step)
        middles = (columns[1:] + columns[:-1]) / 2
        index.append(first + np.searchsorted(middles, wanted))
    lengths = [len(part) for part in index]
    return Axis(np.concatenate(index), np.concatenate([[0], np.cumsum(lengths)]), step)


def find(
    queries: NDArray[np.float32],
    middles: NDArray[np.integer],
    vectors: NDArray[np.float32],
    axis: Axis,
    *,
    k: int,
    longest: float,
) -> list[Way]:
    """The k tunes that a query's snippets run along best.

    `queries` (q, d) and `vectors` (n, d) are unit rows, `middles` (q,) rise, in frames or columns.
    A query that is longer than `longest` is laid along the tunes in several pieces, each where it
    fits best, as is needed where a tune is played twice.
    """
    pieces = _pieces(middles, longest)
    similar = [(queries[piece] @ vectors.T)[:, axis.index] for piece in pieces]
    weights = np.array([len(piece) for piece in pieces]) / len(queries)
    polled = sum(w * votes(s, axis.bounds) for w, s in zip(weights, similar, strict=True))
    chosen = np.sort(np.argsort(-np.asarray(polled), kind="stable")[: max(k, _CANDIDATES)])
    ranges = [np.arange(axis.bounds[t], axis.bounds[t + 1]) for t in chosen.tolist()]
    columns = np.concatenate(ranges)
    bounds = np.concatenate([[0], np.cumsum([len(part) for part in ranges])])
    steps = [(middles[piece] - middles[piece[0]]) / axis.step for piece in pieces]
    lines = [best_lines(s[:, columns], bounds, at) for s, at in zip(similar, steps, strict=True)]
    scores = np.sum([w * line.score for w, line in zip(weights, lines, strict=True)], axis=0)
    ways = []
    for place in np.argsort(-scores, kind="stable")[:k].tolist():
        # Of several pieces, the place of the one that fits best is shown.
        piece = int(np.argmax([line.score[place] for line in lines]))
        line, own = lines[piece], ranges[place]
        path = follow(similar[piece][:, own], steps[piece], line.first[place], line.pace[place])
        rows = axis.index[own[path]]
        ways.append(Way(int(chosen[place]), float(scores[place]), pieces[piece], rows))
    return ways


def _pieces(middles: NDArray[np.integer], longest: float) -> list[NDArray[np.int64]]:
    """Which snippets are together, in pieces of about equal length."""
    length = float(middles[-1] - middles[0])
    count = max(1, int(np.ceil(length / longest)))
    number = np.minimum((middles - middles[0]) * count // max(length, 1), count - 1)
    return [np.flatnonzero(number == piece) for piece in np.unique(number)]
