"""Binary codes: embeddings as a few bytes each, and search by the bits that differ.

binary   BinaryCodes: fit, encode, save, load
index    CodeIndex: Hamming search, ranked anew by vectors if wanted
heads    from embeddings to bits: signs, and signs after a rotation
itq      the rotation that signs lose least by
ranking  heads trained by the ranking loss, also through the towers
packing  bits as bytes
hamming  the nearest codes, by NumPy or faiss
saving   heads on disk
"""

from ccal.codes.binary import BinaryCodes
from ccal.codes.hamming import hamming_distances
from ccal.codes.index import CodeHits, CodeIndex
from ccal.codes.itq import itq_rotation
from ccal.codes.packing import pack, unpack
from ccal.codes.ranking import HeadTraining

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
