"""Retrieval: an index that belongs to its model.

index        Index: build, open, add, remove, update, search
searching    the half of Index that only asks
items        what goes in (Item) and what comes out (Hit, Stats)
filters      conditions on metadata
fingerprint  the hash that binds an index to its model
embedding    raw items and vectors as unit rows
filling      items on their way into a home, a chunk at a time
home         where an index lives: which one a location means
embedded     the folder: SQLite holds the truth, memory-mapped files answer
postgres     the database, by pgvector
milvus       the distributed engine
bound        the half of a home that knows its model
hits         from items with their vectors to hits in their order
answers      hits that are made when somebody looks at them
refusals     what every home refuses, in the same words
errors       an index that is damaged, in use, or of another model
"""

from ccal.retrieval.errors import DamagedIndexError, IndexInUseError, OtherModelError
from ccal.retrieval.fingerprint import fingerprint
from ccal.retrieval.index import Index
from ccal.retrieval.items import Hit, Item, Stats

__all__ = [
    "DamagedIndexError",
    "Hit",
    "Index",
    "IndexInUseError",
    "Item",
    "OtherModelError",
    "Stats",
    "fingerprint",
]
