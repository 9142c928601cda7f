"""Pairs of two modalities and where they come from: arrays, tables, splits.

pairs      two named columns, row i with row i; subsets without copies
arrays     .npy and .npz files
duplicates which items are the same, and which pictures look the same
records    rows of CSV, TSV, JSONL and Parquet files
tables     pairs from a table, with bad rows reported by line
splits     train / valid / test: random, group- or label-disjoint, or from a column
source     `Source`: files, columns and split as plain data
reading    `read_source`: the pairs of a `Source` and their split, with hashes that notice changes
leaks      `leak_notes`: what held-out rows share with training rows
items      items of one modality from a file, to embed or to index; the same items read again
published  readers of published data sets, and their layouts: `describe_layout`, `check_layout`
"""

from ccal.data.arrays import find_bad_rows, load_array
from ccal.data.leaks import leak_notes
from ccal.data.pairs import Pairs, Rows
from ccal.data.published import check_layout, describe_layout, read_layout
from ccal.data.reading import Data, read_source
from ccal.data.source import Source, View
from ccal.data.splits import Split, column_split, disjoint_split, random_split, split_pairs
from ccal.data.tables import BadRows, Table, read_table

__all__ = [
    "BadRows",
    "Data",
    "Pairs",
    "Rows",
    "Source",
    "Split",
    "Table",
    "View",
    "check_layout",
    "column_split",
    "describe_layout",
    "disjoint_split",
    "find_bad_rows",
    "leak_notes",
    "load_array",
    "random_split",
    "read_layout",
    "read_source",
    "read_table",
    "split_pairs",
]
