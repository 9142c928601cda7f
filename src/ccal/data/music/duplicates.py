"""Which tunes are the same melody, perhaps in another key, under another name, or nearly so."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

__all__ = ["melody_groups"]

# Chosen on the Nottingham tunes by their names: nearly all pairs that share a fifth have similar
# ones. Freer versions of a tune share less and are not found.
_LENGTH, _SHARED = 8, 0.2


def melody_groups(melodies: Sequence[tuple[NDArray[np.integer], NDArray[np.integer]]]) -> list[int]:
    """For each melody, pitches (n,) and starts (n,) in any unit, the number of its group.

    Melodies are compared by steps: the interval from one note to the next, and the time between
    them in relation to that of the step before, so that neither key nor unit matters. Two are in
    one group if the one with fewer runs of eight steps shares a fifth of them with the other (a
    shorter melody is one run), and so are two that each resemble a third. Groups are numbered by
    their first melody.

    >>> one = (np.array([60, 62, 64, 60]), np.array([0, 1, 2, 4]))
    >>> higher, other = (one[0] + 5, one[1] * 2), (np.array([60, 64, 62, 60]), one[1])
    >>> melody_groups([one, other, higher])
    [0, 1, 0]
    """
    runs = [_runs(pitches, starts) for pitches, starts in melodies]
    having: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for number, found in enumerate(runs):
        for run in found:
            having[run].append(number)
    shared: Counter[tuple[int, int]] = Counter()
    for numbers in having.values():
        shared.update(combinations(numbers, 2))
    leader = list(range(len(runs)))
    for (one, other), count in shared.items():
        if count >= _SHARED * min(len(runs[one]), len(runs[other])):
            first, second = sorted((_find(leader, one), _find(leader, other)))
            leader[second] = first
    leaders = [_find(leader, number) for number in range(len(runs))]
    numbers_of = {number: place for place, number in enumerate(sorted(set(leaders)))}
    return [numbers_of[number] for number in leaders]


def _runs(
    pitches: NDArray[np.integer], starts: NDArray[np.integer]
) -> set[tuple[tuple[int, int], ...]]:
    """All runs of eight steps; a shorter melody is one run."""
    gaps = np.diff(starts.astype(np.int64))
    # In 1/24: fine enough for triplets, and ticks that were rounded stay equal.
    relative = np.rint(24 * gaps[1:] / gaps[:-1]).astype(np.int64)
    intervals = np.diff(pitches.astype(np.int64))
    steps = list(zip(intervals.tolist(), [0, *relative.tolist()][: len(gaps)], strict=True))
    if len(steps) <= _LENGTH:
        return {tuple(steps)}
    return {tuple(steps[i : i + _LENGTH]) for i in range(len(steps) - _LENGTH + 1)}


def _find(leader: list[int], number: int) -> int:
    while leader[number] != number:
        leader[number] = leader[leader[number]]
        number = leader[number]
    return number
