"""Pairs of two modalities and where they come from: arrays, tables, splits and the text front end.

pairs     two named columns, row i with row i; subsets without copies
arrays    .npy and .npz files
tables    CSV, TSV, JSONL and Parquet, with bad rows reported by line
splits    train / valid / test: random, group- or label-disjoint, or from a column
text      words, lemmas, TF-IDF
words     texts as sequences of word numbers
sparse    rows that are mostly zero
images    features of image files, by a network that was trained before
published readers of published data sets
"""

from ccal.data.arrays import find_bad_rows, load_array, read_arrays
from ccal.data.bad_rows import BadRows
from ccal.data.images import ImageFeatures, find_images, scan_images
from ccal.data.pairs import Pairs, Rows
from ccal.data.sparse import SparseRows
from ccal.data.splits import Split, column_split, disjoint_split, random_split, split_pairs
from ccal.data.tables import Table, read_table
from ccal.data.text import TfidfVectoriser, lemmatise, tokenise
from ccal.data.words import WordSequences

__all__ = [
    "BadRows",
    "ImageFeatures",
    "Pairs",
    "Rows",
    "SparseRows",
    "Split",
    "Table",
    "TfidfVectoriser",
    "WordSequences",
    "column_split",
    "disjoint_split",
    "find_bad_rows",
    "find_images",
    "lemmatise",
    "load_array",
    "random_split",
    "read_arrays",
    "read_table",
    "scan_images",
    "split_pairs",
    "tokenise",
]
