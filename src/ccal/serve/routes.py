"""Searching by files and items, and looking at a collection."""

import json
import time
from typing import Annotated, Any

from fastapi import FastAPI, Request
from fastapi import Query as Parameter
from starlette.responses import Response

import ccal
from ccal.serve.answering import (
    answer_text,
    entries_text,
    entry_text,
    json_response,
    text_response,
)
from ccal.serve.collection import Query, UnknownItemError
from ccal.serve.guard import UPLOAD
from ccal.serve.problems import ProblemError
from ccal.serve.schemas import (
    Info,
    ItemsAnswer,
    MapAnswer,
    Plain,
    Result,
    SearchAnswer,
    body_of,
    documented,
)
from ccal.serve.sending import send_media
from ccal.serve.service import Service

__all__ = ["add_routes"]

Id = Annotated[Plain, Parameter(min_length=1, max_length=4096, description="Id of an item.")]
K = Annotated[int, Parameter(ge=1, description="How many results.")]
To = Annotated[Plain | None, Parameter(description="Modality to search in; the other by default.")]
Where = Annotated[
    Plain | None,
    Parameter(description="Conditions on metadata, as JSON.", examples=['{"year": {">=": 1990}}']),
]
Explain = Annotated[bool, Parameter(description="Say why each result matches.")]


def add_routes(app: FastAPI, service: Service) -> None:
    """Add searching and looking."""
    _add_searching(app, service)
    _add_looking(app, service)


def _add_searching(app: FastAPI, service: Service) -> None:
    @app.post(
        UPLOAD,
        response_model=SearchAnswer,
        responses=documented(408, 413, 415),
        tags=["search"],
        openapi_extra=body_of("application/octet-stream", {"type": "string", "format": "binary"}),
    )
    async def search_file(
        request: Request,
        k: K = 10,
        to: To = None,
        where: Where = None,
        explain: Explain = False,
        kind: Annotated[
            Plain | None, Parameter(description="What the file is, if it may be several things.")
        ] = None,
    ) -> Response:
        """Search by a picture or a sound: the bytes of the file itself, whatever it is called."""
        started = time.perf_counter()
        conditions = _conditions(where)
        content = bytearray()
        async for chunk in request.stream():
            content += chunk
        found, data = await service.decode(bytes(content), kind)
        query = Query(found, data, to, k, conditions, explain)
        answer = await service.search(query)
        return text_response(answer_text(answer, time.perf_counter() - started))

    @app.get(
        "/api/similar",
        response_model=SearchAnswer,
        responses=documented(404),
        tags=["search"],
    )
    async def similar(
        id: Id, k: K = 10, to: To = None, where: Where = None, explain: Explain = False
    ) -> Response:
        """More like an item, in the other modality by default."""
        started = time.perf_counter()
        query = Query("item", id, to, k, _conditions(where), explain)
        try:
            answer = await service.search(query)
        except UnknownItemError as error:
            raise ProblemError(404, str(error)) from error
        return text_response(answer_text(answer, time.perf_counter() - started))


def _add_looking(app: FastAPI, service: Service) -> None:
    collection = service.collection

    @app.get("/api/info", response_model=Info, responses=documented(), tags=["look"])
    async def info() -> Response:
        """What is served: modalities, queries, limits, examples, and the model's card."""
        limits = service.limits
        found = await service.look(collection.info)
        return json_response(
            {
                "kind": collection.kind,
                "title": collection.title,
                "count": sum(modality["count"] for modality in found["modalities"]),
                **found,
                "limits": {
                    name: getattr(limits, name)
                    for name in ("upload_bytes", "seconds", "pixels", "k", "text", "queries")
                },
                "accepts": {kind: types for kind, types in service.accepts().items() if types},
                "version": ccal.__version__,
                "token": service.has_token,
            }
        )

    @app.get("/api/items", response_model=ItemsAnswer, responses=documented(), tags=["look"])
    async def items(
        modality: Annotated[Plain | None, Parameter(description="Of this modality only.")] = None,
        contains: Annotated[
            Plain | None, Parameter(max_length=200, description="Words that the name must have.")
        ] = None,
        offset: Annotated[int, Parameter(ge=0, le=2**31)] = 0,
        limit: K = 24,
    ) -> Response:
        """Items in the order they came."""
        if limit > service.limits.k:
            raise ProblemError(422, f"limit must be {service.limits.k} or less, got {limit}.")
        total, page = await service.look(collection.entries, modality, contains, offset, limit)
        text = f'{{"total":{total},"offset":{offset},"items":{entries_text(page)}}}'
        return text_response(text)

    @app.get("/api/item", response_model=Result, responses=documented(404), tags=["look"])
    async def item(id: Id) -> Response:
        """One item."""
        try:
            return text_response(entry_text(await service.look(collection.entry, id)))
        except UnknownItemError as error:
            raise ProblemError(404, str(error)) from error

    @app.get(
        "/media/{kind}",
        response_class=Response,
        responses={
            200: {"content": {"image/*": {}, "audio/*": {}}, "description": "The bytes."},
            206: {"description": "A part of them, as asked for by Range."},
            304: {"description": "Unchanged."},
            416: {"description": "There is no such part."},
            **documented(404),
        },
        tags=["look"],
    )
    async def media(kind: Plain, id: Id, request: Request) -> Response:
        """A picture or a sound of an item: image, thumbnail, audio or staff."""
        try:
            found = await service.look(collection.media, kind, id)
        except UnknownItemError as error:
            raise ProblemError(404, str(error)) from error
        return send_media(found, request.headers)

    @app.get("/api/map", response_model=MapAnswer, responses=documented(), tags=["look"])
    async def map() -> Response:
        """Items in the two directions in which they differ most."""
        return json_response(await service.look(collection.points))


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
