"""Cross-modality retrieval with CCA projections.

>>> import ccal
>>> layer = ccal.CCALayer(128)
"""

from ccal.cca import CCA, CCALayer
from ccal.errors import CcalError, InputError, NotFittedError, SmallBatchWarning
from ccal.losses import InfoNCELoss, PairwiseRankingLoss, SigmoidLoss, TraceNormLoss

__all__ = [
    "CCA",
    "CCALayer",
    "CcalError",
    "InfoNCELoss",
    "InputError",
    "NotFittedError",
    "PairwiseRankingLoss",
    "SigmoidLoss",
    "SmallBatchWarning",
    "TraceNormLoss",
]

__version__ = "0.1.0"
