"""Binary codes: embeddings as a few bytes each; the public name of `ccal.retrieval.codes`."""

from ccal.retrieval.codes import (
    BinaryCodes,
    CodeHits,
    CodeIndex,
    HeadTraining,
    hamming_distances,
    itq_rotation,
    pack,
    unpack,
)

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
