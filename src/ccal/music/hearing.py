"""Which tune a recording is: the model proposes tunes at many tempi and keys, alignment decides.

Nobody knows how fast and in which key the players played. At each tempo and in each key, a few
snippets of the recording vote for tunes, as the model embeds them. Votes of one tempo are compared
with all others of that tempo. The best proposals are laid along the recording note by note
(`alignment`), beside the same melodies backwards: a tune that is not there fits no better than
those.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from ccal.music.alignment import CERTAIN, CLASSES, align, evidence, follow_melody, melody
from ccal.music.audio import FRAME_RATE
from ccal.music.embedding import Embedder, cut
from ccal.music.identification import Alignment, votes
from ccal.music.pairs import FRAMES
from ccal.music.queries import sounding

Floats = NDArray[np.float32]

# Quarter notes a minute; the model knows all between two neighbours.
TEMPI = tuple(float(tempo) for tempo in np.geomspace(60, 265, 9))
MODEL_TEMPO = 120.0
# Snippets that vote for every tempo and key, and then for so many of the best; fewer, if there are
# more than so many positions for all of them together.
_FEW, _MANY, _LIKELY, _MOST = 8, 32, 36, 5_000_000
# Proposals that are laid along the recording; how many of the best are laid at tempi nearby, too.
_PROPOSALS, _SETTLED, _NEARBY = 400, 10, 1.06
# The logistic curve of `confidence`, fitted to recordings whose tune was and was not searched, and
# the confidence from which on a tune is known: there, 2% of the tunes were missed, and 96% of the
# recordings without their tune were said to be unknown.
_SCALE, _OFFSET, KNOWN = 40.0, -3.2, 0.5


@dataclass(frozen=True)
class Proposal:
    """A tune, how it would be played (quarter notes a minute, semitones up), and its votes.

    Votes are in standard deviations of all tunes and keys at that tempo.
    """

    tune: int
    tempo: float
    shift: int
    votes: float


@dataclass(frozen=True)
class Heard(Alignment):
    """A tune as a recording has it, at `tempo` and `shift` as in `Proposal`.

    `score` is the evidence along the best path, as a share of the largest possible one, and
    `confidence` the probability that it is this tune. `frames` (n,) of the recording fall on the
    `positions` (n,) of the library; they are numbered by `snippets`.
    """

    tempo: float
    shift: int
    confidence: float
    frames: NDArray[np.float64]


class Listener:
    """Searches the tunes of a library: `vectors` (n, dim) of the staff at each eighth note.

    Tune i has the rows from bounds[i] to before bounds[i + 1], and the melody of its `onsets`.
    """

    def __init__(
        self,
        embedder: Embedder,
        vectors: Floats,
        bounds: NDArray[np.int64],
        onsets: Sequence[NDArray[np.void]],
    ) -> None:
        self._embedder, self._bounds = embedder, bounds
        self._melodies = [melody(notes) for notes in onsets]
        # Neighbours look alike: every quarter note is enough for the first votes.
        rows = [np.arange(a, b, 2) for a, b in pairwise(bounds.tolist())]
        self._thin = vectors[np.concatenate(rows)].T
        self._thin_bounds = np.cumsum([0, *map(len, rows)])
        self._all = vectors.T

    def identify(self, sound: Floats, k: int) -> list[Heard]:
        """The k tunes that fit a spectrogram (frames, 136) best, the best first."""
        begin, end = sounding(sound)
        sound = sound[begin:end]
        chroma = self._embedder.chroma(sound)
        trials: dict[tuple[float, int], list[int]] = {}
        for proposal in self.propose(sound):
            trials.setdefault((proposal.tempo, proposal.shift), []).append(proposal.tune)
        best, backwards = self._tried(chroma, trials)
        # A tune is often recognised at a wrong tempo: the leading ones are laid at every tempo.
        leading = sorted(best, key=lambda tune: -best[tune][0])[: max(k, _SETTLED)]
        trials = {}
        for tune in leading:
            for tempo in TEMPI:
                trials.setdefault((tempo, best[tune][2]), []).append(tune)
        best, more = self._tried(chroma, trials)
        backwards = max(backwards, more)
        settled = [self._settle(chroma, begin, tune, *best[tune], backwards) for tune in leading]
        return sorted(settled, key=lambda heard: -heard.score)[:k]

    def _tried(
        self, chroma: Floats, trials: dict[tuple[float, int], list[int]]
    ) -> tuple[dict[int, tuple[float, float, int]], float]:
        """The best score, tempo and shift of each tune, and the best score backwards.

        `trials` are the tunes to lay along the recording at a tempo and with a shift.
        """
        best: dict[int, tuple[float, float, int]] = {}
        backwards = -np.inf
        for (tempo, shift), tunes in trials.items():
            forwards, others = self._scores(chroma, tempo, shift, tunes)
            backwards = max(backwards, float(others.max()))
            for tune, score in zip(tunes, forwards.tolist(), strict=True):
                best[tune] = max(best.get(tune, (-np.inf, 0.0, 0)), (score, tempo, shift))
        return best, backwards

    def propose(self, sound: Floats) -> list[Proposal]:
        """Tunes that most snippets of a spectrogram (frames, 136) vote for, the best first."""
        features = self._embedder.features(sound)
        shifts = range(CLASSES if self._embedder.turns else 1)
        guesses: list[tuple[float, float, int]] = []
        usual: dict[float, tuple[float, float]] = {}
        for tempo in TEMPI:
            snippets = self._snippets(features, tempo, _FEW)
            thin = (self._thin, self._thin_bounds)
            each = np.stack([self._votes(snippets, shift, *thin) for shift in shifts])
            mean, deviation = float(each.mean()), float(each.std()) + 1e-3
            usual[tempo] = mean, deviation
            best = (each.max(axis=1) - mean) / deviation
            guesses += [(z, tempo, shift) for z, shift in zip(best.tolist(), shifts, strict=True)]
        proposals = []
        likely = max(_LIKELY // 3, min(_LIKELY, _MOST // self._all.shape[1]))
        for _, tempo, shift in sorted(guesses, reverse=True)[:likely]:
            snippets = self._snippets(features, tempo, _MANY)
            each = self._votes(snippets, shift, self._all, self._bounds)
            each = (each - usual[tempo][0]) / usual[tempo][1]
            for tune in np.argsort(-each)[:_PROPOSALS].tolist():
                proposals.append(Proposal(tune, tempo, shift, float(each[tune])))
        return sorted(proposals, key=lambda proposal: -proposal.votes)[:_PROPOSALS]

    def _snippets(self, features: Floats, tempo: float, count: int) -> Tensor:
        """At most `count` snippets, evenly spread, of features played at the model's tempo."""
        length = max(1, round(len(features) * tempo / MODEL_TEMPO))
        rows = torch.from_numpy(features.T[None].copy())
        paced = functional.interpolate(rows, length, mode="area")[0].T.numpy()
        room = min(FRAMES // 4, length // 2)
        count = max(1, min(count, (length - 2 * room) // 8 + 1))
        middles = np.linspace(room, length - room, count) if count > 1 else np.array([length / 2])
        return cut(paced, middles, mirrored=True)

    def _votes(
        self, snippets: Tensor, shift: int, vectors: Floats, bounds: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """The votes for each tune, if the players sound `shift` semitones higher than written."""
        turned = snippets.roll(-shift, dims=2) if shift else snippets
        return votes(self._embedder.embed("audio", turned) @ vectors, bounds)

    def _scores(
        self, chroma: Floats, tempo: float, shift: int, tunes: list[int]
    ) -> tuple[Floats, Floats]:
        """The share of the largest evidence for each tune, and for its melody backwards."""
        own = [self._melodies[tune] for tune in tunes]
        both = align(evidence(chroma, tempo, shift), own + [notes[::-1] for notes in own])
        both /= len(chroma) * CERTAIN
        return both[: len(own)], both[len(own) :]

    def _settle(
        self,
        chroma: Floats,
        begin: int,
        tune: int,
        score: float,
        tempo: float,
        shift: int,
        backwards: float,
    ) -> Heard:
        """A tune at the best tempo near one that was tried, with its path from frame `begin` on."""
        for near in (tempo * _NEARBY, tempo / _NEARBY):
            own = float(self._scores(chroma, near, shift, [tune])[0][0])
            if own > score:
                score, tempo = own, near
        path = follow_melody(evidence(chroma, tempo, shift), self._melodies[tune])
        first, last = _longest(path)
        frames = begin + np.asarray((np.arange(first, last) + 0.5) * FRAME_RATE * 15 / tempo)
        rows = self._bounds[tune] + path[first:last] // 2
        rows = np.minimum(rows, self._bounds[tune + 1] - 1)
        sure = confidence(score, backwards)
        return Heard(tune, score, np.arange(len(rows)), rows, tempo, shift, sure, frames)


def confidence(score: float, backwards: float) -> float:
    """The probability that a tune with this score is the one that was played.

    `backwards` is the best score of a melody that is backwards.
    """
    return float(1 / (1 + np.exp(-(_SCALE * (score - backwards) + _OFFSET))))


def _longest(path: NDArray[np.int64]) -> tuple[int, int]:
    """The longest piece of a path, from..to, that never jumps."""
    change = np.diff(path)
    jumps = np.flatnonzero((change < 0) | (change > 2)) + 1
    ends = np.concatenate([[0], jumps, [len(path)]])
    longest = int(np.diff(ends).argmax())
    return int(ends[longest]), int(ends[longest + 1])
