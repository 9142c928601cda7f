"""Retrieval: an index that belongs to its model.

index      Index: build, add, remove, update
index_reader  its other half: open, search, read
items      Item, Hit, Stats, and the errors of an index
pair_items PairItems: the distinct items of pairs, each with its counterparts
embedding  raw items and vectors as unit rows; the fingerprint of a model
models     the model of an index: found where it was saved, or replaced by a newer one
run_index  the items of a run's own pairs, and the index in its folder
filters    conditions on metadata
exact      exact search by matrix products
answers    candidates in one order, and hits made when somebody looks at them
backends   where an index is kept: a folder, PostgreSQL, Milvus
codes      binary codes; `ccal.codes` has their public names
"""

from ccal.optional import lazy_names

__getattr__, __all__ = lazy_names(__name__)
