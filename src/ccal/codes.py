"""Binary codes: embeddings as a few bytes each; the public names of `ccal.retrieval.codes`."""

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
