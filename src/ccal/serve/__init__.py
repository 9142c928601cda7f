"""Serve: an HTTP API and a page over an index or a library of tunes. Needs `ccal[serve]`.

app               create_app: the application of a collection
collection        what can be served, as one set of questions
index_collection  an Index as a collection
limits            bounds on what is asked
"""

from ccal.serve.app import create_app
from ccal.serve.collection import Collection
from ccal.serve.index_collection import IndexCollection
from ccal.serve.limits import Limits

__all__ = ["Collection", "IndexCollection", "Limits", "create_app"]
