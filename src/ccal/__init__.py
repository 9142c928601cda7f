"""Cross-modality retrieval with CCA projections.

>>> import ccal
>>> layer = ccal.CCALayer(128)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
_HOMES = {
    "ccal.bundled": ("pretrained",),
    "ccal.cca": ("CCA", "CCALayer"),
    "ccal.data": ("Pairs",),
    "ccal.errors": ("CcalError", "InputError", "NotFittedError", "SmallBatchWarning"),
    "ccal.losses": ("InfoNCELoss", "PairwiseRankingLoss", "SigmoidLoss", "TraceNormLoss"),
    "ccal.model": ("DualEncoder", "load"),
    "ccal.retrieval": ("Index",),
    "ccal.training": ("Settings", "evaluate", "fit", "train"),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            value = globals()[name] = getattr(import_module(home), name)
            return value
    raise AttributeError(f"module 'ccal' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
