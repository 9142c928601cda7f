"""From the snippets of a query to ranked tunes: all tunes vote, the best are aligned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccal.music.alignment import best_lines, follow, votes

__all__ = ["Axis", "Way", "find", "staff_axis", "time_axis"]

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
