"""Cross-modality retrieval with CCA projections.

>>> import ccal
>>> layer = ccal.CCALayer(128)
"""

from ccal.cca import CCA, CCALayer
from ccal.errors import CcalError, InputError, NotFittedError, SmallBatchWarning
from ccal.losses import InfoNCELoss, PairwiseRankingLoss, SigmoidLoss, TraceNormLoss
from ccal.model import DualEncoder, load

__all__ = [
    "CCA",
    "CCALayer",
    "CcalError",
    "DualEncoder",
    "InfoNCELoss",
    "InputError",
    "NotFittedError",
    "PairwiseRankingLoss",
    "SigmoidLoss",
    "SmallBatchWarning",
    "TraceNormLoss",
    "load",
]

__version__ = "0.1.0"
