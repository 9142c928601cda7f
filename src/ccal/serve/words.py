"""Searching by words, one query a request or many."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from ccal.serve.answering import answer_text, many_text, text_response
from ccal.serve.collection import Query
from ccal.serve.guard import BATCH
from ccal.serve.limits import Limits
from ccal.serve.problems import ProblemError
from ccal.serve.schemas import (
    BatchAnswer,
    BatchRequest,
    SearchAnswer,
    SearchRequest,
    body_of,
    documented,
)
from ccal.serve.service import Service

__all__ = ["WORDS", "add_words"]

WORDS = "/api/search"
Asked = TypeVar("Asked", bound=BaseModel)
Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])


def add_words(app: FastAPI, service: Service) -> None:
    """Add searching by words. The functions read their bodies themselves, see `Direct`."""
    limits = service.limits

    @_post(app, WORDS, SearchRequest, SearchAnswer)
    async def search(request: Request) -> Response:
        """Search by words."""
        started = time.perf_counter()
        asked = _read(SearchRequest, await _body(request))
        _check_length(asked.text, limits)
        query = Query("text", asked.text, asked.to, asked.k, asked.where, asked.explain)
        answer = await service.search(query)
        return text_response(answer_text(answer, time.perf_counter() - started))

    @_post(app, BATCH, BatchRequest, BatchAnswer)
    async def search_many(request: Request) -> Response:
        """Search by many queries in words at once, each with results of its own.

        A query that cannot be answered has a problem in place of results; if none can, the whole
        request is refused.
        """
        started = time.perf_counter()
        asked = _read(BatchRequest, await _body(request))
        if len(asked.texts) > limits.queries:
            raise ProblemError(
                413,
                f"The request has {len(asked.texts):,} texts; {limits.queries:,} or fewer are "
                "answered at once.",
            )
        for text in asked.texts:
            _check_length(text, limits)
        queries = [Query("text", text, asked.to, asked.k, asked.where) for text in asked.texts]
        answers = await service.search_many(queries)
        return text_response(many_text(asked.texts, answers, time.perf_counter() - started))


def _post(
    app: FastAPI, path: str, asked: type[BaseModel], answer: type[BaseModel]
) -> Callable[[Endpoint], Endpoint]:
    """A route by POST that is described as if the framework read its body."""
    return app.post(
        path,
        response_model=answer,
        responses=documented(413),
        tags=["search"],
        openapi_extra=body_of("application/json", asked.model_json_schema()),
    )


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


def _read(shape: type[Asked], body: bytes) -> Asked:
    """A body of this shape, read in one step: the framework's way takes as long as the search."""
    try:
        return shape.model_validate_json(body)
    except ValidationError as error:
        faults: list[Any] = [{**fault, "loc": ("body", *fault["loc"])} for fault in error.errors()]
        raise RequestValidationError(faults) from error


def _check_length(text: str, limits: Limits) -> None:
    if len(text) > limits.text:
        raise ProblemError(422, f"The text has more than {limits.text:,} characters.")
