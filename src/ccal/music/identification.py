"""From the snippets of a query to ranked tunes: all tunes vote, and the best are aligned.

Positions of tunes and snippets of the query both come at steps of one length, of time or along the
staff: a query at the tune's own pace passes one position per step. First every tune gets the mean
of its best similarities (`votes`). The query is then laid along the leading tunes at an even pace,
at every pace and from every position (`best_lines`), which gives the score. Near the best line of
each named tune, the best path that never turns back (`follow`) gives the positions.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

# From 0.79 to 1.27 positions per step, 4% apart.
PACES = tuple(float(pace) for pace in np.exp(np.linspace(-1, 1, 13) * np.log(1.27)))
# Only the tunes with most votes are laid along the query.
_CANDIDATES = 1500
# The cost of each position by which a path leaves its line or comes back to it.
_BEND = 0.1


@dataclass(frozen=True)
class Axis:
    """Positions of all tunes at equal steps, of time or along the staff.

    `index` (m,) are rows of the positions; tune i has those from bounds[i] to before bounds[i + 1].
    A `step` is that many frames, or columns.
    """

    index: NDArray[np.int64]
    bounds: NDArray[np.int64]
    step: float


@dataclass(frozen=True)
class Alignment:
    """A tune, its score, and for `snippets` of the query the rows of their `positions`."""

    tune: int
    score: float
    snippets: NDArray[np.int64]
    positions: NDArray[np.int64]


def time_axis(positions: NDArray[Any], tunes: int) -> Axis:
    """Steps of time: every position."""
    bounds = np.searchsorted(positions["tune"], np.arange(tunes + 1))
    inside = np.diff(positions["tune"]) == 0
    # The mean, since frames are whole numbers and steps are not.
    step = float(np.diff(positions["frame"])[inside].mean()) if inside.any() else 1.0
    return Axis(np.arange(len(positions)), bounds, step)


def staff_axis(positions: NDArray[Any], tunes: int, step: float = 10.0) -> Axis:
    """Steps along the staff: the nearest position for each."""
    bounds = np.searchsorted(positions["tune"], np.arange(tunes + 1))
    index = []
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        columns = positions["column"][first:last].astype(np.float64)
        wanted = np.arange(columns[0], columns[-1] + step, step)
        middles = (columns[1:] + columns[:-1]) / 2
        index.append(first + np.searchsorted(middles, wanted))
    lengths = [len(part) for part in index]
    return Axis(np.concatenate(index), np.concatenate([[0], np.cumsum(lengths)]), step)


@dataclass(frozen=True)
class Lines:
    """For each tune (n,) the line along which the query resembles it most.

    `score` is the mean similarity along it, `first` the position of the query's step 0, which can
    lie before the tune, and `pace` the number of positions that it passes per step.
    """

    score: NDArray[np.float64]
    first: NDArray[np.int64]
    pace: NDArray[np.float64]


def votes(similarity: Floats, bounds: NDArray[np.int64]) -> NDArray[np.float64]:
    """For each tune the mean, over snippets, of the best similarity (q, n) among its positions.

    Tune i has the positions from bounds[i] to before bounds[i + 1].

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
    """Lay the query along each tune at every pace and from every position, as `Lines`.

    `similarity` (q, n) and `bounds` are as in `votes`; `steps` (q,), rising, are the times of the
    query's snippets. Where the query goes on beyond a tune, its similarity is 0.

    >>> similarity = np.array([[0, 1, 0, 0], [0, 0, 0, 1]], dtype=np.float32)
    >>> lines = best_lines(similarity, np.array([0, 4]), np.array([0, 2]), paces=(1.0,))
    >>> lines.score.tolist(), lines.first.tolist()
    ([1.0], [1])
    """
    shifts = [np.rint(steps * pace).astype(np.int64) for pace in paces]
    span = int(max(shift[-1] for shift in shifts))
    tunes, (queries, positions) = len(bounds) - 1, similarity.shape
    # As many empty positions before and behind each tune as the query is long, so that all tunes
    # can be tried at once and no line runs into the next tune.
    own = np.repeat(np.arange(tunes), np.diff(bounds))
    width = positions + (tunes + 1) * span
    wide = np.zeros((queries, width), dtype=np.float32)
    wide[:, np.arange(positions) + (own + 1) * span] = similarity
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
    """The positions (q,) of the best path along one tune that never turns back, near a line.

    Among all paths through `similarity` (q, n) within `band` positions of the line, it has the
    largest similarity, less a little for every position by which its distance from the line
    changes. Found by dynamic programming.

    >>> similarity = np.eye(4, 5, dtype=np.float32)
    >>> follow(similarity, np.arange(4), first=1, pace=0.8).tolist()
    [0, 1, 2, 3]
    """
    queries, positions = similarity.shape
    line = np.rint(first + steps * pace).astype(np.int64)
    offsets = np.arange(-band, band + 1)
    at = line[:, None] + offsets
    inside = (at >= 0) & (at < positions)
    values = np.where(
        inside, similarity[np.arange(queries)[:, None], at.clip(0, positions - 1)], 0.0
    )
    change = np.abs(offsets[:, None] - offsets[None, :])
    total = values[0]
    came_from = np.zeros((queries, len(offsets)), dtype=np.int64)
    for row in range(1, queries):
        forward = at[row][None, :] >= at[row - 1][:, None]
        options = np.where(forward, total[:, None] - _BEND * change, -np.inf)
        came_from[row] = options.argmax(axis=0)
        total = options.max(axis=0) + values[row]
    backwards = [int(total.argmax())]
    for row in range(queries - 1, 0, -1):
        backwards.append(int(came_from[row, backwards[-1]]))
    path = at[np.arange(queries), backwards[::-1]]
    return np.asarray(path.clip(0, positions - 1))


def rank_tunes(
    queries: NDArray[np.float32],
    middles: NDArray[np.integer],
    vectors: NDArray[np.float32],
    axis: Axis,
    *,
    k: int,
    longest: float,
) -> list[Alignment]:
    """The k tunes that a query fits best, the best first.

    `queries` (q, d) and `vectors` (n, d) are unit rows, `middles` (q,) rise, in frames or columns.
    A query that is longer than `longest` is laid along the tunes in several pieces, each where it
    fits best: players repeat parts.
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
    alignments = []
    for candidate in np.argsort(-scores, kind="stable")[:k].tolist():
        # The alignment is that of the piece that fits best.
        piece = int(np.argmax([line.score[candidate] for line in lines]))
        line, own = lines[piece], ranges[candidate]
        path = follow(
            similar[piece][:, own], steps[piece], line.first[candidate], line.pace[candidate]
        )
        rows = axis.index[own[path]]
        alignments.append(
            Alignment(int(chosen[candidate]), float(scores[candidate]), pieces[piece], rows)
        )
    return alignments


def _pieces(middles: NDArray[np.integer], longest: float) -> list[NDArray[np.int64]]:
    """The numbers of the snippets of each piece; pieces have about equal lengths."""
    length = float(middles[-1] - middles[0])
    count = max(1, int(np.ceil(length / longest)))
    number = np.minimum((middles - middles[0]) * count // max(length, 1), count - 1)
    return [np.flatnonzero(number == piece) for piece in np.unique(number)]
