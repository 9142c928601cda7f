"""Search: by words (one query a request, or many), by a file, by an item; and the fast path.

Routes for words read their bodies themselves, and `FastPath` calls them past the framework, whose
layers and whose way to read a body take as long as a search of a small index.
"""

# FastAPI reads the annotations of the routes, so that they cannot be strings here.
import json
import time
from typing import Annotated, Any, TypeVar

from fastapi import FastAPI, Request
from fastapi import Query as Parameter
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ccal.serve import schemas
from ccal.serve.collection import Query
from ccal.serve.guard import BATCH, UPLOAD
from ccal.serve.problems import ProblemError
from ccal.serve.schemas import Plain, described, takes
from ccal.serve.service import Service, answer_text, answers_text, text_response

WORDS = "/api/search"
Id = Annotated[Plain, Parameter(min_length=1, max_length=4096, description="Id of an item.")]
K = Annotated[int, Parameter(ge=1, description="Number of results.")]
To = Annotated[Plain | None, Parameter(description="Modality to search in; the other by default.")]
Where = Annotated[
    Plain | None,
    Parameter(description="Conditions on metadata, as JSON.", examples=['{"year": {">=": 1990}}']),
]
Explain = Annotated[bool, Parameter(description="Say why each result matches.")]
Kind = Annotated[Plain | None, Parameter(description="Kind of query, if the file fits several.")]
Shape = TypeVar("Shape", bound=BaseModel)


def add_search_routes(app: FastAPI, service: Service) -> None:
    """Add `/api/search`, `/api/search/batch`, `/api/search/file` and `/api/similar`."""
    limits = service.limits

    def check_length(text: str) -> None:
        if len(text) > limits.text:
            raise ProblemError(422, f"The text has more than {limits.text:,} characters.")

    async def answered(query: Query, started: float) -> Response:
        answer = await service.search(query)
        return text_response(answer_text(answer, time.perf_counter() - started))

    takes_json = takes("application/json", schemas.SearchRequest.model_json_schema())

    @app.post(WORDS, **described("search", schemas.SearchAnswer, 413), **takes_json)
    async def search(request: Request) -> Response:
        """Search by words."""
        started = time.perf_counter()
        body = _parsed(schemas.SearchRequest, await _body(request))
        check_length(body.text)
        query = Query("text", body.text, body.to, body.k, body.where, body.explain)
        return await answered(query, started)

    takes_json = takes("application/json", schemas.BatchRequest.model_json_schema())

    @app.post(BATCH, **described("search", schemas.BatchAnswer, 413), **takes_json)
    async def search_many(request: Request) -> Response:
        """Search by many queries in words at once, each with its own results.

        A query that cannot be answered has a problem in place of results; if none can, the whole
        request is refused.
        """
        started = time.perf_counter()
        body = _parsed(schemas.BatchRequest, await _body(request))
        if len(body.texts) > limits.queries:
            given, most = len(body.texts), limits.queries
            detail = f"The request has {given:,} texts; {most:,} or fewer are answered at once."
            raise ProblemError(413, detail)
        for text in body.texts:
            check_length(text)
        queries = [Query("text", text, body.to, body.k, body.where) for text in body.texts]
        answers = await service.search_many(queries)
        return text_response(answers_text(body.texts, answers, time.perf_counter() - started))

    takes_file = takes("application/octet-stream", {"type": "string", "format": "binary"})

    @app.post(UPLOAD, **described("search", schemas.SearchAnswer, 408, 413, 415), **takes_file)
    async def search_file(
        request: Request,
        k: K = 10,
        to: To = None,
        where: Where = None,
        explain: Explain = False,
        kind: Kind = None,
    ) -> Response:
        """Search by a picture or a sound: the body is the file itself, of whatever name."""
        started = time.perf_counter()
        conditions = _conditions(where)
        async with service.decoded(await _body(request), kind) as (found, data):
            return await answered(Query(found, data, to, k, conditions, explain), started)

    @app.get("/api/similar", **described("search", schemas.SearchAnswer, 404))
    async def similar(
        id: Id, k: K = 10, to: To = None, where: Where = None, explain: Explain = False
    ) -> Response:
        """More like an item, in the other modality by default."""
        query = Query("item", id, to, k, _conditions(where), explain)
        return await answered(query, time.perf_counter())


class FastPath:
    """ASGI middleware that calls POST routes for words itself, and leaves all else to `app`.

    The functions of these routes must take the request and return the response, since nothing is
    filled in for them. The guard answers the exceptions that they raise.
    """

    def __init__(self, app: FastAPI) -> None:
        self._app: ASGIApp = app
        self._routes = {
            route.path: route
            for route in app.routes
            if isinstance(route, APIRoute) and route.path in (WORDS, BATCH)
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or pass it on."""
        posted = scope["type"] == "http" and scope["method"] == "POST"
        route = self._routes.get(scope["path"]) if posted else None
        if route is None:
            await self._app(scope, receive, send)
            return
        # The guard counts the request under this route.
        scope["route"] = route
        response = await route.endpoint(Request(scope, receive))
        await response(scope, receive, send)


async def _body(request: Request) -> bytes:
    """The whole body, in one step if it came in one: `Request.body` goes through generators."""
    parts = []
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


def _parsed(shape: type[Shape], body: bytes) -> Shape:
    try:
        return shape.model_validate_json(body)
    except ValidationError as error:
        faults: list[Any] = [{**fault, "loc": ("body", *fault["loc"])} for fault in error.errors()]
        raise RequestValidationError(faults) from error


def _conditions(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        where = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProblemError(422, 'where must be JSON, such as {"year": 1999}.') from error
    if not isinstance(where, dict):
        raise ProblemError(422, 'where must be an object, such as {"year": 1999}.')
    return where
