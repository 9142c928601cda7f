"""Binary codes: embeddings as a few bytes each; the public names of `ccal.retrieval.codes`."""

from ccal.retrieval.codes.binary import BinaryCodes
from ccal.retrieval.codes.code_index import CodeHits, CodeIndex, hamming_distances, pack, unpack
from ccal.retrieval.codes.heads import HeadTraining, itq_rotation

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
