"""Which tune a recording is: the model proposes tunes at many tempi and keys, alignment decides.

Nobody knows how fast and in which key the players played. At each tempo and in each key, a few
snippets of the recording vote for tunes, as the model embeds them. The tunes with most votes are
laid along the recording note by note (`alignment`), beside the same melodies backwards: a tune that
is not there fits no better than those.
"""

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from ccal.music.alignment import CLASSES, USUAL, Costs, align, evidence, follow_melody, melody
from ccal.music.audio import FRAME_RATE
from ccal.music.embedding import Embedder, cut
from ccal.music.identification import Alignment, votes
from ccal.music.pairs import FRAMES
from ccal.music.queries import sounding

Floats = NDArray[np.float32]

# Quarter notes a minute; the model knows all between two neighbours.
TEMPI = tuple(float(tempo) for tempo in np.geomspace(60, 265, 9))
MODEL_TEMPO = 120.0
# Snippets that vote, and proposals of all tempi and keys.
_SNIPPETS, _PROPOSALS = 12, 1296
# Tunes that are laid at every tempo and, of these, tempi nearby.
_SETTLED, _NEARBY = 20, 1.06
# The logistic curve of `confidence`, fitted to recordings whose tune was and was not searched, and
# the confidence from which on a tune is known: there, 2% of the tunes were missed, and 98% of the
# recordings without their tune were said to be unknown.
SCALE, OFFSET, KNOWN = 40.0, -4.2, 0.5


@dataclass(frozen=True)
class Proposal:
    """A tune, how it would be played (quarter notes a minute, semitones up), and its score.

    The score is that of `Heard`, once the tune is laid along the recording.
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
        self._embedder, self._bounds, self._costs = embedder, bounds, USUAL
        self._melodies = [melody(notes) for notes in onsets]
        # Neighbours look alike: every quarter note is enough for votes.
        rows = [np.arange(a, b, 2) for a, b in pairwise(bounds.tolist())]
        self._vectors = vectors[np.concatenate(rows)]
        self._vector_bounds = np.cumsum([0, *map(len, rows)])

    def at(self, costs: Costs) -> Self:
        """The same tunes, searched with other costs of the alignment."""
        other = copy(self)
        other._costs = costs
        return other

    def identify(self, sound: Floats, k: int) -> list[Heard]:
        """The k tunes that fit a spectrogram (frames, 136) best, the best first."""
        begin, end = sounding(sound)
        sound = sound[begin:end]
        chroma = self._embedder.chroma(sound)
        proposals = self.propose(chroma if self._embedder.by_chroma else sound)
        best, backwards = self._laid(chroma, proposals)
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
            both = align(
                evidence(chroma, tempo, self._costs),
                own + [notes[::-1] for notes in own],
                self._costs,
            )
            both /= len(chroma) * self._costs.certain
            backwards = max(backwards, float(both[len(own) :].max()))
            for one, score in zip(alike, both.tolist(), strict=False):
                if one.tune not in best or score > best[one.tune].score:
                    best[one.tune] = replace(one, score=score)
        return best, backwards

    def _melody(self, proposal: Proposal) -> NDArray[np.int8]:
        """The melody of a tune as it would be played."""
        return (self._melodies[proposal.tune] + np.int8(proposal.shift)) % np.int8(CLASSES)

    def propose(self, features: Floats) -> list[Proposal]:
        """At each tempo and in each key, the tunes that a recording votes for.

        `features` are its chroma (frames, 12), or its spectrogram for models that see these.
        """
        shifts = range(CLASSES if self._embedder.by_chroma else 1)
        paced = {tempo: self._snippets(features, tempo) for tempo in TEMPI}
        ways = [(tempo, shift) for tempo in TEMPI for shift in shifts]
        # Played some semitones higher than written, and turned back.
        parts = [paced[tempo].roll(-shift, dims=2) for tempo, shift in ways]
        each = votes(
            self._embedder.embed("audio", torch.cat(parts)), self._vectors, self._vector_bounds
        )
        ends = np.cumsum([len(part) for part in parts])[:-1]
        return [
            Proposal(tune, *way)
            for way, own in zip(ways, np.split(each, ends), strict=True)
            for tune in np.argsort(-own.mean(axis=0))[: _PROPOSALS // len(ways)].tolist()
        ]

    def _snippets(self, features: Floats, tempo: float) -> Tensor:
        """At most 12 snippets, evenly spread, of features played at the model's tempo."""
        length = max(1, round(len(features) * tempo / MODEL_TEMPO))
        rows = torch.from_numpy(features.T[None].copy())
        paced = functional.interpolate(rows, length, mode="area")[0].T.numpy()
        room = min(FRAMES // 4, length // 2)
        count = max(1, min(_SNIPPETS, (length - 2 * room) // 8 + 1))
        middles = np.linspace(room, length - room, count) if count > 1 else np.array([length / 2])
        return cut(paced, middles, mirrored=True)

    def _settle(self, chroma: Floats, begin: int, found: Proposal, backwards: float) -> Heard:
        """A tune with its path along the recording, from frame `begin` on."""
        tune, tempo = found.tune, found.tempo
        path = follow_melody(evidence(chroma, tempo, self._costs), self._melody(found), self._costs)
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
    return float(1 / (1 + np.exp(-(SCALE * (score - backwards) + OFFSET))))


def _longest(path: NDArray[np.int64]) -> tuple[int, int]:
    """The longest piece of a path, from..to, that never jumps."""
    change = np.diff(path)
    jumps = np.flatnonzero((change < 0) | (change > 2)) + 1
    ends = np.concatenate([[0], jumps, [len(path)]])
    longest = int(np.diff(ends).argmax())
    return int(ends[longest]), int(ends[longest + 1])
