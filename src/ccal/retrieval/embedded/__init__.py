"""The embedded home: a folder with a database that is the truth, and files that answer fast.

home         EmbeddedHome: changes and searches
places       the folder itself
database     a SQLite file, in transactions
truth        every item and its vector, in a database
lock         one writer at a time
segments     files of vectors, memory-mapped
repair       segments that are damaged, written again
sealing      the truth's newest rows become segments, small segments larger ones
snapshot     what a search sees: segments, rows not yet in one, rows removed
exact        search by matrix products
approximate  search in large segments by faiss
"""

from ccal.retrieval.embedded.home import EmbeddedHome

__all__ = ["EmbeddedHome"]
