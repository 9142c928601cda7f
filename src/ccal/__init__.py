"""Cross-modality retrieval with CCA projections.

>>> import ccal
>>> layer = ccal.CCALayer(128)
"""

from ccal.optional import lazy_names

__version__ = "0.1.0"

__getattr__, __all__ = lazy_names(__name__)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
