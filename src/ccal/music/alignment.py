"""Melodies laid along a recording, note by note, by dynamic programming.

A recording gives, for each of its frames, how likely each pitch class sounds. Laid along a tune at
a tempo, every sixteenth note of the recording falls on one of the tune: on the next one, or, at a
cost, on the same one again or on the next but one. At a higher cost it may go on anywhere: players
repeat parts, or begin another one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ccal.music.audio import FRAME_RATE

Floats = NDArray[np.float32]

CLASSES = 12
# A sixteenth note in the ticks of a store; a position of a library is an eighth.
SIXTEENTH = 240
# Grid positions of the last note, whose end is not stored.
_LAST = 4
# Before each melody: nothing can come from the one before it.
_GAP = 2


@dataclass(frozen=True)
class Costs:
    """What alignment expects of players, as logarithms of probabilities but for the first.

    Args:
        unclear: share of frames whose pitch class says nothing.
        bend: cost of a step that is too short or too long.
        jump: cost of going on elsewhere.
    """

    unclear: float = 0.36
    bend: float = 3.0
    jump: float = 60.0

    @property
    def certain(self) -> float:
        """The evidence of a frame in which only the right class sounds."""
        return math.log(self.unclear + (1 - self.unclear) * CLASSES)


USUAL = Costs()


def melody(onsets: NDArray[np.void]) -> NDArray[np.int8]:
    """The pitch class (n,) of every sixteenth note of a tune; the last one sounds for a quarter."""
    at = (onsets["tick"] - onsets["tick"][0]) // SIXTEENTH
    note = np.searchsorted(at, np.arange(int(at[-1]) + _LAST), side="right") - 1
    return np.asarray(onsets["pitch"][note] % CLASSES, dtype=np.int8)


def evidence(chroma: Floats, tempo: float, costs: Costs = USUAL) -> Floats:
    """For each sixteenth note of a recording, how much speaks for each pitch class (steps, 12).

    Logarithms of likelihoods, compared with every class being as likely, from its `chroma`
    (frames, 12). The recording is played at `tempo` quarter notes a minute.
    """
    likely = np.log(costs.unclear + (1 - costs.unclear) * CLASSES * chroma)
    step = FRAME_RATE * 15.0 / tempo
    count = max(1, int(len(chroma) / step))
    edges = np.rint(np.arange(count + 1) * step).astype(np.int64).clip(max=len(chroma))
    total = np.concatenate([np.zeros((1, CLASSES)), np.cumsum(likely, axis=0)])
    return np.asarray(np.diff(total[edges], axis=0), dtype=np.float32)


def align(found: Floats, melodies: Sequence[NDArray[np.int8]], costs: Costs = USUAL) -> Floats:
    """The evidence `found` (steps, 12) along the best path through each of some melodies.

    >>> scale = np.array([0, 2, 4, 5, 7, 9, 11, 0], dtype=np.int8)
    >>> found = np.full((4, 12), -10, dtype=np.float32)
    >>> found[np.arange(4), scale[2:6]] = 10
    >>> align(found, [scale, scale[::-1]]).tolist()
    [40.0, -20.0]
    """
    gap = np.full(_GAP, CLASSES, dtype=np.int64)
    classes = np.concatenate([part for melody in melodies for part in (gap, melody)])
    lengths = np.array([_GAP + len(melody) for melody in melodies])
    starts = np.cumsum(lengths) - lengths
    wide = np.concatenate([found, np.full((len(found), 1), -1e9, np.float32)], axis=1)
    total = np.zeros(len(classes), dtype=np.float32)
    best = np.zeros(len(melodies), dtype=np.float32)
    for row in wide:
        new = np.repeat(best - costs.jump, lengths)
        bent = total - costs.bend
        np.maximum(new, bent, out=new)
        np.maximum(new[1:], total[:-1], out=new[1:])
        np.maximum(new[2:], bent[:-2], out=new[2:])
        new += row.take(classes, mode="clip")
        total, best = new, np.maximum.reduceat(new, starts)
    return best


def follow_melody(
    found: Floats, melody: NDArray[np.int8], costs: Costs = USUAL
) -> NDArray[np.int64]:
    """The sixteenth notes (steps,) of a melody on the best path of `align`.

    >>> found = np.full((3, 12), -10, dtype=np.float32)
    >>> found[[0, 1, 2], [4, 5, 7]] = 10
    >>> follow_melody(found, np.array([0, 2, 4, 5, 7, 9], dtype=np.int8)).tolist()
    [2, 3, 4]
    """
    steps, length = len(found), len(melody)
    total = np.zeros(length, dtype=np.float32)
    origin = np.empty((steps, length), dtype=np.int32)
    here = np.arange(length)
    # By how many positions each way goes on, and what it costs.
    ways = ((1, 0.0), (0, costs.bend), (2, costs.bend))
    for row in range(steps):
        start = int(total.argmax())
        new = np.full(length, total[start] - costs.jump, dtype=np.float32)
        origin[row] = start
        for forward, cost in ways:
            reached = np.full(length, -np.inf, dtype=np.float32)
            reached[forward:] = total[: length - forward] - cost
            better = reached > new
            new[better] = reached[better]
            origin[row][better] = here[better] - forward
        total = new + found[row][melody]
    path = np.empty(steps, dtype=np.int64)
    path[-1] = total.argmax()
    for row in range(steps - 1, 0, -1):
        path[row - 1] = origin[row][path[row]]
    return path
