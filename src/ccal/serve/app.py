"""The application: a collection, its towers behind a batcher, and a guard before everything."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from anyio.to_thread import run_sync
from fastapi import FastAPI
from starlette.types import ASGIApp

import ccal
from ccal.serve.batching import Batcher
from ccal.serve.collection import Answer, Collection, Question
from ccal.serve.direct import Direct
from ccal.serve.guard import BATCH, Guard
from ccal.serve.hosts import Hosts
from ccal.serve.judging import add_evaluation
from ccal.serve.limits import Limits
from ccal.serve.metrics import Metrics
from ccal.serve.page import add_page
from ccal.serve.problems import add_handlers
from ccal.serve.routes import add_routes
from ccal.serve.service import Service
from ccal.serve.watching import add_watching
from ccal.serve.words import WORDS, add_words

__all__ = ["create_app"]

_DESCRIPTION = """Search a collection of two modalities by words, by a file, or by one of its items.

Errors are `application/problem+json`. With a token, send `Authorization: Bearer TOKEN`."""


def create_app(
    collection: Collection,
    *,
    limits: Limits | None = None,
    token: str | None = None,
    hosts: Iterable[str] = (),
) -> ASGIApp:
    """An ASGI application that serves a collection, and closes it when it ends.

    Args:
        limits: on what is asked.
        token: everything but the page itself then needs `Authorization: Bearer TOKEN`.
        hosts: names besides localhost and this machine's that requests may be meant for.
    """
    limits, metrics = limits or Limits(), Metrics()
    batcher: Batcher[Question, Answer] = Batcher(
        collection.answer,
        batch=limits.batch,
        window=limits.window,
        waiting=limits.waiting,
        observe=metrics.batch,
    )
    service = Service(collection, batcher, limits, metrics, has_token=token is not None)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        await run_sync(collection.warm)
        yield
        batcher.close()
        collection.close()

    # The pages that FastAPI brings load scripts from elsewhere.
    app = FastAPI(
        title="ccal",
        version=ccal.__version__,
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        lifespan=life,
    )
    add_handlers(app)
    add_words(app, service)
    add_routes(app, service)
    add_evaluation(app, service)
    add_watching(app, service)
    add_page(app)
    _describe_limits(app, limits, token is not None)
    direct = Direct(app, (WORDS, BATCH))
    return Guard(direct, limits=limits, metrics=metrics, hosts=Hosts(hosts), token=token)


def _describe_limits(app: FastAPI, limits: Limits, has_token: bool) -> None:
    """Put this server's own limits into its OpenAPI description."""
    schema: dict[str, Any] = app.openapi()
    for path in (WORDS, BATCH):
        body = schema["paths"][path]["post"]["requestBody"]["content"]
        asked = body["application/json"]["schema"]["properties"]
        asked["k"]["maximum"] = limits.k
        if path == BATCH:
            asked["texts"]["maxItems"] = limits.queries
        text = asked["texts"]["items"] if path == BATCH else asked["text"]
        text["maxLength"] = limits.text
    for path in schema["paths"].values():
        for operation in path.values():
            for parameter in operation.get("parameters", []):
                if parameter["name"] in ("k", "limit"):
                    parameter["schema"]["maximum"] = limits.k
    if has_token:
        schemes = {"token": {"type": "http", "scheme": "bearer"}}
        schema["components"]["securitySchemes"] = schemes
        schema["security"] = [{"token": []}]
