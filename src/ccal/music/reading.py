"""Which tunes are on a page: the model proposes tunes for each line, and its note heads decide.

The snippets of every staff line vote for tunes, as the model embeds them, by the staves and by the
sound of the library. The heads of the line are then laid along the notes of the proposed tunes, and
along the same notes backwards: a tune that is not there fits no better than those. A page of
several tunes is cut into runs of lines, each with the tune that fits all of them.
"""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ccal.music.embedding import MODALITIES, Embedder, cut
from ccal.music.heads import find_heads
from ccal.music.identification import votes
from ccal.music.pages import StaffLine
from ccal.music.pairs import COLUMNS
from ccal.music.score import Score

Floats = NDArray[np.float32]
Steps = NDArray[np.int64]

# Columns between snippets of a line, and the share of each that must lie within it.
_HOP, _FILLED = 10, 0.75
# Tunes proposed for the whole page, and for each line.
_PROPOSALS, _PER_LINE = 400, 40
# How sharply the confidence rises with the worth of a head, and the worth at which it is a half,
# which rises with that of the best tune backwards: fitted to 16 scans and exported pages.
SHARP, HALF, OTHER = 15.5, 0.54, 0.27
# A line with fewer heads is no evidence.
_FEW = 5
_LETTERS = "cdefgab"
# More than the worth of any line.
_APART = 1e4


@dataclass(frozen=True)
class Worth:
    """What the heads of a line are worth, where one on the note of its step is worth 1.

    Args:
        near: a head one step beside the note.
        wrong: a head elsewhere.
        left_out: a head without a note, and a note without a head.
        model: a cosine of 1, beside all heads of a line.
        change: what is lost to begin another tune, in lines.
    """

    near: float = -0.2
    wrong: float = -0.6
    left_out: float = -0.5
    model: float = 0.2
    change: float = 0.35

    def of(self, away: Steps) -> NDArray[np.float64]:
        """The worth of heads that are so many steps away from their notes."""
        return np.where(away == 0, 1.0, np.where(away == 1, self.near, self.wrong))


USUAL = Worth()


@dataclass(frozen=True)
class Heads:
    """The heads of a line or of a tune, from left to right.

    `steps` (n,) count lines and spaces up from the middle line, of heads above each other for the
    highest. `at` (n,) are columns of the line, or the numbers of the tune's onsets.
    """

    steps: Steps
    at: NDArray[np.float64]


@dataclass(frozen=True)
class Reading:
    """A tune and the `lines` (numbers) of a page that it stands on.

    `score` is the worth of a head along the best paths, 1 if all are on a note; `other` the same
    for the best of the tunes backwards. `votes` is the model's part: the mean cosine of the best
    snippets. `places` has rows (number of the line, its column, onset of the tune).
    """

    tune: int
    lines: tuple[int, ...]
    score: float
    other: float
    votes: float
    places: NDArray[np.float64]

    @property
    def confidence(self) -> float:
        """How likely it is, from 0 to 1, that the lines are of this tune."""
        return sureness(self.score, self.other)


def sureness(
    score: float, other: float, sharp: float = SHARP, half: float = HALF, shared: float = OTHER
) -> float:
    """The confidence of a reading; `benchmarks.pages` fits and measures it."""
    away = score - half - shared * max(other, 0.0)
    return float(1 / (1 + np.exp(-sharp * away)))


def heads_of(score: Score) -> Heads:
    """The heads of a score; a tied one belongs to the onset before it.

    >>> from ccal.music import parse_abc
    >>> heads = heads_of(parse_abc("X:1\\nL:1/4\\nK:G\\nGB-Bz[ce]|]"))
    >>> heads.steps.tolist(), heads.at.tolist()
    ([-2, 0, 0, 3], [0.0, 1.0, 1.0, 2.0])
    """
    middle = 7 * 4 + _LETTERS.index("b")
    begins = {number for _, number in score.attacks()}
    steps, at = [], []
    onset = -1
    for number, (_, note) in enumerate(score.notes()):
        onset += number in begins
        if note.pitches:
            best = max(7 * pitch.octave + _LETTERS.index(pitch.step) for pitch in note.pitches)
            steps.append(best - middle)
            at.append(max(0, onset))
    return Heads(np.array(steps, dtype=np.int64), np.array(at, dtype=np.float64))


def heads_on(ink: Floats) -> Heads:
    """The heads that are found on a line (columns, 40)."""
    found = find_heads(ink)
    return Heads(found["step"].astype(np.int64), found["column"].astype(np.float64))


def lay_along(heads: Steps, tunes: Sequence[Steps], worth: Worth = USUAL) -> NDArray[np.float64]:
    """The worth of the heads (n,) of a line along the best path through each tune, a head.

    >>> scale = np.arange(8)
    >>> lay_along(scale[2:6], [scale, scale[::-1]]).round(2).tolist()
    [1.0, -0.12]
    """
    lengths = np.array([len(tune) + 1 for tune in tunes])
    starts = np.cumsum(lengths) - lengths
    # A place before the first note of each tune has no step.
    notes = np.full(int(lengths.sum()), np.iinfo(np.int64).min // 2)
    inside = np.ones(len(notes), dtype=bool)
    inside[starts] = False
    notes[inside] = np.concatenate(tunes)
    # What leaves out notes goes on to the right, but never into the next tune.
    ramp = -worth.left_out * np.arange(len(notes)) + _APART * np.repeat(
        np.arange(len(tunes)), lengths
    )
    total = np.zeros(len(notes))
    for head in heads.tolist():
        new = total + worth.left_out
        before = total[:-1] + worth.of(np.abs(notes - head))[1:]
        new[1:] = np.where(inside[1:], np.maximum(new[1:], before), new[1:])
        total = np.maximum.accumulate(new + ramp) - ramp
    return np.asarray(np.maximum.reduceat(total, starts) / max(1, len(heads)))


def follow_steps(heads: Steps, tune: Steps, worth: Worth = USUAL) -> NDArray[np.int64]:
    """The notes (n,) of a tune under the heads of a line on the best path; -1 for none.

    >>> follow_steps(np.array([2, 3, 9, 4]), np.arange(8)).tolist()
    [2, 3, -1, 4]
    """
    n, m = len(heads), len(tune)
    total = np.zeros((n + 1, m + 1))
    for i in range(n):
        new = total[i] + worth.left_out
        new[1:] = np.maximum(new[1:], total[i, :-1] + worth.of(np.abs(tune - heads[i])))
        ramp = -worth.left_out * np.arange(m + 1)
        total[i + 1] = np.maximum.accumulate(new + ramp) - ramp
    found = np.full(n, -1, dtype=np.int64)
    i, j = n, int(total[n].argmax())
    while i > 0:
        if np.isclose(total[i, j], total[i - 1, j] + worth.left_out):
            i -= 1
        elif j > 0 and np.isclose(total[i, j], total[i, j - 1] + worth.left_out):
            j -= 1
        else:
            i, j = i - 1, j - 1
            found[i] = j
    return found


class PageReader:
    """Searches the tunes of a library for the lines of a page.

    `vectors` has the embeddings (n, dim) of each modality; tune i has the rows from bounds[i] to
    before bounds[i + 1], and `notes(i)` are its heads.
    """

    def __init__(
        self,
        embedder: Embedder,
        vectors: dict[str, Floats],
        bounds: NDArray[np.int64],
        notes: Callable[[int], Heads],
    ) -> None:
        self._embedder, self._vectors, self._bounds, self._notes = embedder, vectors, bounds, notes
        self._worth = USUAL

    def at(self, worth: Worth) -> Self:
        """The same tunes, searched with heads of another worth."""
        other = copy(self)
        other._worth = worth
        return other

    def identify(
        self, lines: Sequence[StaffLine], k: int, *, without: Sequence[int] = ()
    ) -> list[list[Reading]]:
        """For each tune on a page, from top to bottom, the k tunes that fit best.

        The tunes `without` are left out, as if they were not in the library.
        """
        polled = self.poll(lines)
        heads = [heads_on(line.ink) for line in lines]
        counts = np.array([len(own.steps) for own in heads])
        weights = np.where(counts >= _FEW, counts, 0.1)
        proposed = [np.argsort(-(weights @ polled))[:_PROPOSALS]]
        proposed += [np.argsort(-row)[:_PER_LINE] for row in polled]
        tunes = np.setdiff1d(np.concatenate(proposed), without)
        notes = [self._notes(tune).steps for tune in tunes.tolist()]
        both = notes + [own[::-1] for own in notes]
        laid = np.stack([lay_along(own.steps, both, self._worth) for own in heads])
        forward, backward = laid[:, : len(tunes)], laid[:, len(tunes) :]
        # Between paths of equal worth the model decides, and alone where a line has no heads.
        total = forward + self._worth.model * polled[:, tunes]
        answers: list[list[Reading]] = []
        for run in runs(total * weights[:, None] / weights.mean(), self._worth.change):
            share = weights[run] / weights[run].sum()
            other = float((share @ backward[run]).max())
            answers.append([])
            for one in np.argsort(-(share @ total[run]), kind="stable")[:k].tolist():
                answers[-1].append(
                    Reading(
                        tune=int(tunes[one]),
                        lines=tuple(run),
                        score=float(share @ forward[run, one]),
                        other=other,
                        votes=float(share @ polled[run, tunes[one]]),
                        places=self._places(int(tunes[one]), run, heads),
                    )
                )
        return answers

    def poll(self, lines: Sequence[StaffLine]) -> NDArray[np.float64]:
        """The votes of the snippets of each line for each tune (lines, tunes): the model's part."""
        return np.stack([self._votes(line.ink) for line in lines])

    def _places(self, tune: int, run: list[int], heads: list[Heads]) -> NDArray[np.float64]:
        notes, rows = self._notes(tune), []
        for line in run:
            found = follow_steps(heads[line].steps, notes.steps, self._worth)
            on = found >= 0
            number = np.full(int(on.sum()), float(line))
            rows.append(np.stack([number, heads[line].at[on], notes.at[found[on]]], axis=1))
        return np.concatenate(rows)

    def _votes(self, ink: Floats) -> NDArray[np.float64]:
        """The votes of a line's snippets for each tune, by its staff and by its sound."""
        snippets = self._embedder.embed("sheet", cut(ink, spots(ink), mirrored=True))
        parts = [votes(snippets, self._vectors[name], self._bounds) for name in MODALITIES]
        return np.asarray(np.mean(parts, axis=(0, 1), dtype=np.float64))


def runs(worth: NDArray[np.float64], change: float = USUAL.change) -> list[list[int]]:
    """Lines cut into runs, each of one tune, so that the `worth` (lines, tunes) is the largest.

    To begin another tune costs `change`.

    >>> runs(np.array([[0.9, 0.2], [0.6, 0.5], [0.1, 0.8], [0.2, 0.9]]))
    [[0, 1], [2, 3]]
    """
    total, came = worth[0], []
    for row in worth[1:]:
        best = int(total.argmax())
        changed = total[best] - change > total
        came.append(np.where(changed, best, np.arange(len(total))))
        total = np.where(changed, total[best] - change, total) + row
    path = [int(total.argmax())]
    for back in reversed(came):
        path.append(int(back[path[-1]]))
    path.reverse()
    found = [[0]]
    for line in range(1, len(path)):
        if path[line] == path[line - 1]:
            found[-1].append(line)
        else:
            found.append([line])
    return found


def spots(ink: Floats, hop: int = _HOP) -> NDArray[np.int64]:
    """The middles (n,) of snippets of a staff line (columns, 40)."""
    margin = round(COLUMNS * (_FILLED - 0.5))
    middles = np.arange(margin, len(ink) - margin + 1, hop)
    return middles if len(middles) else np.array([len(ink) // 2])
