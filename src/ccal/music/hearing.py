"""Which tune a recording is: the model proposes tunes at many tempi and keys, alignment decides.

Nobody knows how fast and in which key the players played. At each tempo and in each key, a few
snippets of the recording vote for tunes, as the model embeds them. Votes of one tempo are compared
with all others of that tempo. The best proposals are laid along the recording note by note
(`alignment`), beside the same melodies backwards: a tune that is not there fits no better than
those.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
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
    """A tune, how it would be played (quarter notes a minute, semitones up), and its score.

    Of votes the score is in standard deviations of all tunes and keys at that tempo; once the tune
    is laid along the recording it is the evidence, as in `Heard`.
    """

    tune: int
    tempo: float
    shift: int
    score: float = 0.0


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
        self._thin = vectors[np.concatenate(rows)]
        self._thin_bounds = np.cumsum([0, *map(len, rows)])
        self._all = vectors

    def identify(self, sound: Floats, k: int) -> list[Heard]:
        """The k tunes that fit a spectrogram (frames, 136) best, the best first."""
        begin, end = sounding(sound)
        sound = sound[begin:end]
        chroma = self._embedder.chroma(sound)
        best, backwards = self._laid(chroma, self.propose(sound))
        # A tune is often recognised at a wrong tempo: the leading ones are laid at every tempo.
        leading = sorted(best, key=lambda tune: -best[tune].score)[: max(k, _SETTLED)]
        tried = [replace(best[tune], tempo=tempo) for tune in leading for tempo in TEMPI]
        best, more = self._laid(chroma, tried)
        nearby = (1, _NEARBY, 1 / _NEARBY)
        tried = [replace(one, tempo=one.tempo * near) for one in best.values() for near in nearby]
        best, _ = self._laid(chroma, tried)
        settled = sorted(best.values(), key=lambda proposal: -proposal.score)[:k]
        return [self._settle(chroma, begin, one, max(backwards, more)) for one in settled]

    def _laid(
        self, chroma: Floats, proposals: Iterable[Proposal]
    ) -> tuple[dict[int, Proposal], float]:
        """For each tune the proposal with the most evidence, and the best score backwards."""
        at_tempo: dict[float, list[Proposal]] = {}
        for proposal in proposals:
            at_tempo.setdefault(proposal.tempo, []).append(proposal)
        best: dict[int, Proposal] = {}
        backwards = -np.inf
        for tempo, alike in at_tempo.items():
            own = [self._melody(proposal) for proposal in alike]
            both = align(evidence(chroma, tempo), own + [notes[::-1] for notes in own])
            both /= len(chroma) * CERTAIN
            backwards = max(backwards, float(both[len(own) :].max()))
            for one, score in zip(alike, both.tolist(), strict=False):
                if one.tune not in best or score > best[one.tune].score:
                    best[one.tune] = replace(one, score=score)
        return best, backwards

    def _melody(self, proposal: Proposal) -> NDArray[np.int8]:
        """The melody of a tune as it would be played."""
        return (self._melodies[proposal.tune] + np.int8(proposal.shift)) % np.int8(CLASSES)

    def propose(self, sound: Floats) -> list[Proposal]:
        """Tunes that most snippets of a spectrogram (frames, 136) vote for, the best first."""
        features = self._embedder.features(sound)
        shifts = range(CLASSES if self._embedder.turns else 1)
        ways = [(tempo, shift) for tempo in TEMPI for shift in shifts]
        each = self._votes(features, ways, _FEW, self._thin, self._thin_bounds)
        by_tempo = each.reshape(len(TEMPI), -1)
        usual = by_tempo.mean(axis=1), by_tempo.std(axis=1) + 1e-3
        mean, deviation = (np.repeat(values, len(shifts)) for values in usual)
        likely = max(_LIKELY // 3, min(_LIKELY, _MOST // len(self._all)))
        first = np.argsort((mean - each.max(axis=1)) / deviation)[:likely]
        ways = [ways[way] for way in first.tolist()]
        each = self._votes(features, ways, _MANY, self._all, self._bounds)
        each = (each - mean[first, None]) / deviation[first, None]
        proposals = [
            Proposal(tune, *way, float(votes_here[tune]))
            for way, votes_here in zip(ways, each, strict=True)
            for tune in np.argsort(-votes_here)[:_PROPOSALS].tolist()
        ]
        return sorted(proposals, key=lambda proposal: -proposal.score)[:_PROPOSALS]

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
        self,
        features: Floats,
        ways: Sequence[tuple[float, int]],
        count: int,
        vectors: Floats,
        bounds: NDArray[np.int64],
    ) -> NDArray[np.float64]:
        """The votes (ways, tunes) of at most `count` snippets, for each tempo and shift."""
        paced = {tempo: self._snippets(features, tempo, count) for tempo in {t for t, _ in ways}}
        # Played some semitones higher than written, and turned back.
        parts = [paced[tempo].roll(-shift, dims=2) for tempo, shift in ways]
        each = votes(self._embedder.embed("audio", torch.cat(parts)), vectors, bounds)
        ends = np.cumsum([len(part) for part in parts])[:-1]
        return np.stack([own.mean(axis=0, dtype=np.float64) for own in np.split(each, ends)])

    def _settle(self, chroma: Floats, begin: int, found: Proposal, backwards: float) -> Heard:
        """A tune with its path along the recording, from frame `begin` on."""
        tune, tempo = found.tune, found.tempo
        path = follow_melody(evidence(chroma, tempo), self._melody(found))
        first, last = _longest(path)
        frames = begin + np.asarray((np.arange(first, last) + 0.5) * FRAME_RATE * 15 / tempo)
        rows = self._bounds[tune] + path[first:last] // 2
        rows = np.minimum(rows, self._bounds[tune + 1] - 1)
        sure = confidence(found.score, backwards)
        snippets = np.arange(len(rows))
        return Heard(tune, found.score, snippets, rows, tempo, found.shift, sure, frames)


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
