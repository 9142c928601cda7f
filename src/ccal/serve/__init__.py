"""Serve: an HTTP API and a page over an index or a library of tunes. Needs the extra `serve`.

app               create_app, and the server that runs the application
guard             before every request: hosts, tokens, limits, headers
routes            items, media, evaluation, health and the page; search_routes those of search
service           between routes and collection: batches, uploads, JSON
collection        the interface of a collection
index_collection  an Index as a collection; tune_collection a TuneLibrary
"""

from ccal.optional import require

for _package in ("fastapi", "uvicorn", "prometheus_client"):
    require(_package, extra="serve", purpose="Serving")

from ccal.serve.app import create_app  # noqa: E402
from ccal.serve.collection import Collection  # noqa: E402
from ccal.serve.guard import Limits  # noqa: E402
from ccal.serve.index_collection import IndexCollection  # noqa: E402

__all__ = ["Collection", "IndexCollection", "Limits", "create_app"]
