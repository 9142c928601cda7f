"""The page and its files, from the package itself."""

from __future__ import annotations

import hashlib
from pathlib import Path

from fastapi import FastAPI, Request
from starlette.responses import Response

from ccal.serve.problems import ProblemError

__all__ = ["add_page"]

_FOLDER = Path(__file__).with_name("static")
# Fixed, since a machine's own table of types may hold anything.
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}


def add_page(app: FastAPI) -> None:
    """Add `/` and `/static/NAME`."""

    @app.get("/", include_in_schema=False)
    async def page(request: Request) -> Response:
        return _file("index.html", request)

    @app.get("/static/{name}", include_in_schema=False)
    async def static(name: str, request: Request) -> Response:
        return _file(name, request)

    @app.get("/favicon.ico", include_in_schema=False)
    async def icon(request: Request) -> Response:
        return _file("icon.svg", request)


def _file(name: str, request: Request) -> Response:
    # Compared with what is there, so that no name leads anywhere else.
    found = {path.name: path for path in _FOLDER.iterdir() if path.suffix in _TYPES}
    if name not in found:
        raise ProblemError(404, "There is nothing at this address.")
    content = found[name].read_bytes()
    tag = f'"{hashlib.sha256(content).hexdigest()[:24]}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, 200, headers, _TYPES[found[name].suffix])
