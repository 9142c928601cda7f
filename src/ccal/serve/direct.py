"""What is asked most is answered past the framework."""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["Direct"]


class Direct:
    """ASGI middleware that calls some routes itself: the framework's layers cost as much as they.

    Only for routes by POST whose functions take the request and return the response, since nothing
    is filled in for them. Whatever they raise is left to the guard. `app` describes them, answers
    other methods, and everything else.
    """

    def __init__(self, app: FastAPI, paths: Iterable[str]) -> None:
        self._app: ASGIApp = app
        wanted = set(paths)
        self._routes = {
            route.path: route
            for route in app.routes
            if isinstance(route, APIRoute) and route.path in wanted and route.methods == {"POST"}
        }
        if missing := wanted - self._routes.keys():
            raise LookupError(f"there is no POST {', '.join(sorted(missing))}")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or pass it on."""
        posted = scope["type"] == "http" and scope["method"] == "POST"
        route = self._routes.get(scope["path"]) if posted else None
        if route is None:
            await self._app(scope, receive, send)
            return
        # Under this name the request is counted.
        scope["route"] = route
        response = await route.endpoint(Request(scope, receive))
        await response(scope, receive, send)
