"""The home in Milvus, the distributed engine: shards, replicas and storage are its work.

home      MilvusBackend: changes and searches
writer    its lock, its changes, and what follows them
location  which server, and the name of an index there
server    the connection and its requests
state     the commit record, which makes a change true
lock      one writer at a time
rows      columns of a collection, items as rows
writing   a change in the making
facets    metadata in a form that Milvus can filter by
search    the nearest items in one state
upkeep    rows that count no more, cells for approximate search
"""

from ccal.retrieval.backends.milvus.home import MilvusBackend

__all__ = ["MilvusBackend"]
