"""Binary codes: embeddings as a few bytes each, and search by the number of bits that differ.

binary      BinaryCodes: fit, encode, save, load
heads       from embeddings to bits: signs, and signs after a rotation (iterative quantisation)
training    heads trained by the ranking loss, also through the towers
hamming     packed bits, and the nearest codes by NumPy or faiss
code_index  CodeIndex: Hamming search, re-ranked by vectors if wanted
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ccal.retrieval.codes.binary import BinaryCodes
    from ccal.retrieval.codes.code_index import CodeHits, CodeIndex
    from ccal.retrieval.codes.hamming import hamming_distances, pack, unpack
    from ccal.retrieval.codes.heads import itq_rotation
    from ccal.retrieval.codes.training import HeadTraining

__all__ = [
    "BinaryCodes",
    "CodeHits",
    "CodeIndex",
    "HeadTraining",
    "hamming_distances",
    "itq_rotation",
    "pack",
    "unpack",
]

# Imported when first used: an index with codes needs no training of heads.
_MODULES = {
    "BinaryCodes": "binary",
    "CodeHits": "code_index",
    "CodeIndex": "code_index",
    "HeadTraining": "training",
    "itq_rotation": "heads",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_MODULES.get(name, 'hamming')}")
    value = globals()[name] = getattr(module, name)
    return value
