"""Losses on matching embeddings x, y of shape (n, k): lower means matches are found better.

- `PairwiseRankingLoss`: a match must beat every mismatch by a margin (the paper's).
- `InfoNCELoss`: cross entropy over the batch with a temperature (CLIP's).
- `SigmoidLoss`: each combination judged by itself (SigLIP's).
"""

from ccal.losses.infonce import InfoNCELoss
from ccal.losses.ranking import PairwiseRankingLoss
from ccal.losses.sigmoid import SigmoidLoss
from ccal.losses.trace_norm import TraceNormLoss

__all__ = ["InfoNCELoss", "PairwiseRankingLoss", "SigmoidLoss", "TraceNormLoss"]
