"""Front ends: raw items in, rows of numbers out; each saves itself with the model.

text       words, lemmas, vocabularies: what text front ends share
tfidf      TF-IDF as sparse rows
words      texts as sequences of word numbers
sentences  SentenceEmbeddings: features of texts, by a network that was trained before
bert       such a network: BERT, from a folder that sentence-transformers wrote
union      FeatureUnion: several front ends of one modality, side by side
images     ImageFeatures: features of image files, by a network that was trained before
backbones  such networks by name, and how to add one
loading    one image: file, orientation, colours, centre crop
scan       image files in a folder; which of a list cannot be read
cache      features on disk, by content
"""

from ccal.features.backbones import (
    Backbone,
    as_backbone,
    backbone_names,
    load_backbone,
    register_backbone,
)
from ccal.features.cache import FeatureCache, user_cache
from ccal.features.images import ImageFeatures
from ccal.features.loading import centre_crop, load_image
from ccal.features.scan import BadImages, ImageScan, find_images, scan_images
from ccal.features.sentences import SentenceEmbeddings
from ccal.features.text import lemmatise, tokenise
from ccal.features.tfidf import SparseRows, TfidfVectoriser
from ccal.features.union import FeatureRows, FeatureUnion, UnionRows, feature_rows, reads_images
from ccal.features.words import WordSequences

__all__ = [
    "Backbone",
    "BadImages",
    "FeatureCache",
    "FeatureRows",
    "FeatureUnion",
    "ImageFeatures",
    "ImageScan",
    "SentenceEmbeddings",
    "SparseRows",
    "TfidfVectoriser",
    "UnionRows",
    "WordSequences",
    "as_backbone",
    "backbone_names",
    "centre_crop",
    "feature_rows",
    "find_images",
    "lemmatise",
    "load_backbone",
    "load_image",
    "reads_images",
    "register_backbone",
    "scan_images",
    "tokenise",
    "user_cache",
]
