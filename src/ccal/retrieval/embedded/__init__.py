"""The embedded home: a folder with a database that is the truth, and files that answer fast.

home         EmbeddedHome: changes and searches
places       the folder itself
database     a SQLite file, in transactions
truth        every item and its vector, in a database
segments     files of vectors, and of what is known of their items
records      what is known of an item, as bytes
repair       files that are missing or damaged, written again
sealing      the truth's newest rows become segments, small segments larger ones
snapshot     what a search sees: segments, rows not yet in one, rows removed
current      the snapshot of now
parts        search in one of them
exact        search by matrix products
approximate  search in large segments by faiss
codes        search in large segments by binary codes
scoring      cosines of candidates in float64
ranking      candidates of all parts in their order
"""

from ccal.retrieval.embedded.home import EmbeddedHome

__all__ = ["EmbeddedHome"]
