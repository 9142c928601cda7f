"""Cross-modality retrieval with CCA projections.

>>> import ccal
>>> layer = ccal.CCALayer(128)
"""

from typing import TYPE_CHECKING

from ccal.optional import lazy_names

if TYPE_CHECKING:
    from ccal.bundled import pretrained
    from ccal.cca import CCA, CCALayer
    from ccal.data import Pairs
    from ccal.errors import CcalError, InputError, NotFittedError, SmallBatchWarning
    from ccal.losses import InfoNCELoss, PairwiseRankingLoss, SigmoidLoss, TraceNormLoss
    from ccal.model import DualEncoder, load
    from ccal.retrieval import Index
    from ccal.training import Settings, evaluate, fit, train

__all__ = [
    "CCA",
    "CCALayer",
    "CcalError",
    "DualEncoder",
    "Index",
    "InfoNCELoss",
    "InputError",
    "NotFittedError",
    "Pairs",
    "PairwiseRankingLoss",
    "Settings",
    "SigmoidLoss",
    "SmallBatchWarning",
    "TraceNormLoss",
    "evaluate",
    "fit",
    "load",
    "pretrained",
    "train",
]

__version__ = "0.1.0"

# Imported when first used: torch takes seconds, which `ccal --help` must not.
__getattr__ = lazy_names(
    __name__,
    {
        "bundled": ("pretrained",),
        "cca": ("CCA", "CCALayer"),
        "codes": (),
        "data": ("Pairs",),
        "encoders": (),
        "errors": ("CcalError", "InputError", "NotFittedError", "SmallBatchWarning"),
        "evaluation": (),
        "features": (),
        "losses": ("InfoNCELoss", "PairwiseRankingLoss", "SigmoidLoss", "TraceNormLoss"),
        "model": ("DualEncoder", "load"),
        "music": (),
        "reports": (),
        "retrieval": ("Index",),
        "runs": (),
        "training": ("Settings", "evaluate", "fit", "train"),
    },
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
