"""Which tune a recording is: the model proposes tunes at many tempi and keys, alignment decides.

Nobody knows how fast and in which key the players played. At each tempo and in each key, a few
snippets of the recording vote for tunes, as the model embeds them. Votes of one tempo are compared
with all others of that tempo. The best proposals are laid along the recording note by note
(`alignment`), beside the same melodies backwards: a tune that is not there fits no better than
those.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ccal.music.alignment import CLASSES, Melodies, align, evidence, follow_melody
from ccal.music.audio import FRAME_RATE
from ccal.music.embedding import Embedder, cut
from ccal.music.identification import votes
from ccal.music.pairs import FRAMES

Floats = NDArray[np.float32]

# Quarter notes a minute; the model knows all between two neighbours.
TEMPI = tuple(float(tempo) for tempo in np.geomspace(60, 265, 9))
MODEL_TEMPO = 120.0
# Snippets that vote for every tempo and key, and then for so many of the best.
_FEW, _MANY, _LIKELY = 8, 32, 24
# Proposals that are laid along the recording, and tempi around that of a proposal.
_PROPOSALS = 160
_NEAR = (0.94, 1.0, 1.06)


@dataclass(frozen=True)
class Proposal:
    """A tune, how it would be played (quarter notes a minute, semitones up), and its votes."""

    tune: int
    tempo: float
    shift: int
    votes: float


@dataclass(frozen=True)
class Heard:
    """A tune as a recording has it.

    `score` is the evidence a frame along the best path, `other` the same for the best melody that
    is backwards; `frames` (n,) of the recording fall on the `positions` (n,) of the tune.
    """

    tune: int
    tempo: float
    shift: int
    votes: float
    score: float
    other: float
    frames: NDArray[np.float64]
    positions: NDArray[np.int64]


class Listener:
    """Searches the tunes of a library: `vectors` (n, dim) of the staff at each eighth note.

    Tune i has the rows from bounds[i] to before bounds[i + 1], and a melody of as many eighths.
    """

    def __init__(
        self, embedder: Embedder, vectors: Floats, bounds: NDArray[np.int64], melodies: Melodies
    ) -> None:
        self._embedder, self._vectors, self._bounds = embedder, vectors, bounds
        self._melodies = melodies
        # Neighbours look alike: every quarter note is enough for the first votes.
        rows = [np.arange(a, b, 2) for a, b in zip(bounds[:-1], bounds[1:], strict=True)]
        self._thin = np.ascontiguousarray(vectors[np.concatenate(rows)].T)
        self._thin_bounds = np.cumsum([0, *map(len, rows)])
        self._all = np.ascontiguousarray(vectors.T)

    def propose(self, sound: Floats) -> list[Proposal]:
        """The tunes that most snippets of a spectrogram (frames, 136) vote for, best first."""
        features = self._embedder.features(sound)
        shifts = range(CLASSES if self._embedder.turns else 1)
        guesses, usual = [], {}
        for tempo in TEMPI:
            snippets = self._snippets(features, tempo, _FEW)
            each = np.stack([
                self._votes(snippets, shift, self._thin, self._thin_bounds) for shift in shifts
            ])
            usual[tempo] = float(each.mean()), float(each.std()) + 1e-3
            best = (each.max(axis=1) - usual[tempo][0]) / usual[tempo][1]
            guesses += [(float(z), tempo, shift) for z, shift in zip(best, shifts, strict=True)]
        proposals = []
        for _, tempo, shift in sorted(guesses, reverse=True)[:_LIKELY]:
            snippets = self._snippets(features, tempo, _MANY)
            each = self._votes(snippets, shift, self._all, self._bounds)
            each = (each - usual[tempo][0]) / usual[tempo][1]
            for tune in np.argsort(-each)[:_PROPOSALS].tolist():
                proposals.append(Proposal(tune, tempo, shift, float(each[tune])))
        return sorted(proposals, key=lambda p: -p.votes)[:_PROPOSALS]

    def _snippets(self, features: Floats, tempo: float, count: int) -> torch.Tensor:
        """At most `count` snippets, evenly spread, of features played at the model's tempo."""
        length = max(1, round(len(features) * tempo / MODEL_TEMPO))
        rows = torch.from_numpy(features.T[None])
        paced = torch.nn.functional.interpolate(rows, length, mode="area")[0].T.numpy()
        room = min(FRAMES // 4, length // 2)
        count = max(1, min(count, (length - 2 * room) // 8 + 1))
        middles = np.linspace(room, length - room, count) if count > 1 else np.array([length / 2])
        return cut(paced, middles, mirrored=True)

    def _votes(
        self, snippets: torch.Tensor, shift: int, vectors: Floats, bounds: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """The votes for each tune, if the players sound `shift` semitones higher than written."""
        turned = snippets.roll(-shift, dims=2) if shift else snippets
        return votes(self._embedder.embed("audio", turned) @ vectors, bounds)

    def identify(self, sound: Floats, k: int) -> list[Heard]:
        """The k tunes that fit a spectrogram (frames, 136) best."""
        chroma = self._embedder.chroma(sound)
        proposals = self.propose(sound)
        groups: dict[tuple[float, int], list[Proposal]] = {}
        for proposal in proposals:
            groups.setdefault((proposal.tempo, proposal.shift), []).append(proposal)
        scored = []
        other = -np.inf
        for (tempo, shift), group in groups.items():
            scores, backwards = self._score(chroma, tempo, shift, [p.tune for p in group])
            scored += zip(scores.tolist(), group, strict=True)
            other = max(other, float(backwards.max()))
        best: dict[int, tuple[float, Proposal]] = {}
        for score, proposal in sorted(scored, key=lambda pair: -pair[0]):
            best.setdefault(proposal.tune, (score, proposal))
        answers = []
        for score, proposal in list(best.values())[: max(k, 10)]:
            answers.append(self._settle(chroma, proposal, score, other))
        return sorted(answers, key=lambda heard: -heard.score)[:k]

    def _score(
        self, chroma: Floats, tempo: float, shift: int, tunes: list[int]
    ) -> tuple[Floats, Floats]:
        """The evidence a frame for each tune, and for its melody backwards."""
        own = [self._melodies.tune(tune) for tune in tunes]
        both = align(evidence(chroma, tempo, shift), own + [melody[::-1] for melody in own])
        both /= len(chroma)
        return both[: len(own)], both[len(own) :]

    def _settle(self, chroma: Floats, proposal: Proposal, score: float, other: float) -> Heard:
        """A proposal at the best tempo near its own, with its path."""
        melody, tempo = self._melodies.tune(proposal.tune), proposal.tempo
        for factor in _NEAR:
            near = proposal.tempo * factor
            own = self._score(chroma, near, proposal.shift, [proposal.tune])[0][0]
            if own > score:
                score, tempo = float(own), near
        path = follow_melody(evidence(chroma, tempo, proposal.shift), melody)
        first, last = self._longest(path)
        frames = (np.arange(first, last) + 0.5) * FRAME_RATE * 15 / tempo
        rows = self._bounds[proposal.tune] + path[first:last] // 2
        return Heard(
            proposal.tune, tempo, proposal.shift, proposal.votes, score, other, frames,
            np.minimum(rows, self._bounds[proposal.tune + 1] - 1),
        )

    @staticmethod
    def _longest(path: NDArray[np.int64]) -> tuple[int, int]:
        """The longest piece of a path, from..to, that never jumps."""
        change = np.diff(path)
        jumps = np.flatnonzero((change < 0) | (change > 2)) + 1
        ends = np.concatenate([[0], jumps, [len(path)]])
        longest = int(np.diff(ends).argmax())
        return int(ends[longest]), int(ends[longest + 1])
