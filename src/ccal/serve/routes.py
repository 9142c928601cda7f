"""Everything but search: items and their media, the evaluation, the server's health, the page."""

# FastAPI reads the annotations of the routes, so that they cannot be strings here.
import logging
import mimetypes
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Request
from fastapi import Query as Parameter
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

import ccal
from ccal.errors import CcalError
from ccal.retrieval import OtherModelError
from ccal.serve import schemas
from ccal.serve.collection import CutShortError, NotReadyError, encode
from ccal.serve.item_files import send_media
from ccal.serve.problems import ProblemError
from ccal.serve.run_evaluation import RunEvaluation
from ccal.serve.schemas import Plain, described, documented
from ccal.serve.search_routes import Id, K
from ccal.serve.service import Service, entries_text, entry_text, json_response, text_response

_log = logging.getLogger("ccal.serve")
_LIMITS = ("upload_bytes", "seconds", "pixels", "k", "text", "queries")
# Fixed here, since the table of types of a machine may have other ones, and browsers insist.
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
Modality = Annotated[Plain | None, Parameter(description="Of this modality only.")]
Contains = Annotated[
    Plain | None, Parameter(max_length=200, description="Words that the name must have.")
]

Ends = Annotated[
    list[Annotated[int, Parameter(ge=-(2**31), le=2**31)]],
    Parameter(
        min_length=1, max_length=32, description="Dimensions; negative for the end of low values."
    ),
]


def add_routes(app: FastAPI, service: Service) -> None:
    """Add every route but those of search."""
    _add_items(app, service)
    _add_evaluation(app, service)
    _add_health(app, service)
    _add_page(app)


def _add_items(app: FastAPI, service: Service) -> None:
    collection, limits = service.collection, service.limits

    @app.get("/api/info", **described("look", schemas.Info))
    async def info() -> Response:
        """Modalities, kinds of queries, limits, examples, and the model's card."""
        found = await service.read(collection.info)
        return json_response(
            {
                "kind": collection.kind,
                "title": collection.title,
                "count": sum(modality["count"] for modality in found["modalities"]),
                **found,
                "limits": {name: getattr(limits, name) for name in _LIMITS},
                "accepts": {kind: types for kind, types in service.accepts().items() if types},
                "version": ccal.__version__,
                "token": service.has_token,
            }
        )

    @app.get("/api/items", **described("look", schemas.ItemsAnswer))
    async def items(
        modality: Modality = None,
        contains: Contains = None,
        offset: Annotated[int, Parameter(ge=0, le=2**31)] = 0,
        limit: K = 24,
    ) -> Response:
        """Items in order of insertion."""
        if limit > limits.k:
            raise ProblemError(422, f"limit must be {limits.k} or less, got {limit}.")
        total, page = await service.read(collection.entries, modality, contains, offset, limit)
        text = f'{{"total":{total},"offset":{offset},"items":{entries_text(page)}}}'
        return text_response(text)

    @app.get("/api/item", **described("look", schemas.Result, 404))
    async def item(id: Id) -> Response:
        """One item."""
        return text_response(entry_text(await service.read(collection.entry, id)))

    @app.get(
        "/media/{kind}",
        response_class=Response,
        responses={
            200: {"content": {"image/*": {}, "audio/*": {}}, "description": "The bytes."},
            206: {"description": "The part of them that Range asks for."},
            304: {"description": "Unchanged."},
            416: {"description": "There is no such part."},
            **documented(404),
        },
        tags=["look"],
    )
    async def media(kind: Plain, id: Id, request: Request) -> Response:
        """A picture or a sound of an item: image, thumbnail, audio or staff."""
        found = await service.read(collection.media, kind, id)
        return send_media(found, request.headers)

    @app.get("/api/map", **described("look", schemas.MapAnswer))
    async def map() -> Response:
        """Items in two dimensions, with named regions."""
        return json_response(await service.read(collection.points))

    @app.get("/api/dimensions", **described("look", schemas.DimensionsAnswer))
    async def dimensions(end: Ends) -> Response:
        """Words and items at ends of dimensions, as `why` of a result numbers them."""
        found = await service.read(collection.dimensions, end)
        parts = [
            f"{encode({'end': one.end, 'terms': one.terms, 'words': one.words})[:-1]},"
            f'"examples":{entries_text(one.examples)}}}'
            for one in found
        ]
        return text_response(f'{{"ends":[{",".join(parts)}]}}')


def _add_evaluation(app: FastAPI, service: Service) -> None:
    def known() -> RunEvaluation:
        found = service.collection.evaluation()
        if found is None:
            raise ProblemError(404, "The model has no evaluation: its run is not known.")
        return found

    @app.get("/api/evaluation", **described("evaluation", schemas.EvaluationAnswer, 404))
    async def evaluation() -> Response:
        """Measures of the model on held-out pairs."""
        return json_response(known().as_dict())

    def file_of(types: dict[str, Any]) -> dict[str, Any]:
        found = {200: {"content": types, "description": "The file."}, **documented(404)}
        return {"response_class": Response, "responses": found, "tags": ["evaluation"]}

    @app.get("/api/evaluation/plot", **file_of({"image/svg+xml": {}, "image/png": {}}))
    async def plot(name: Plain, type: Plain = "svg", theme: Plain = "light") -> Response:
        """A plot, as svg or png; svg also for a dark page."""
        return _sandboxed(*await service.read(known().plot, name, type, theme == "dark"))

    @app.get("/api/evaluation/report", **file_of({"text/html": {}}))
    async def report() -> Response:
        """The whole report of the run, as a page without scripts."""
        content = await service.read(known().report)
        return _sandboxed(content, "text/html; charset=utf-8", "; img-src data:")


def _sandboxed(content: bytes, type: str, more: str = "") -> Response:
    """A file of the run, which may have styles, but may neither run nor load anything."""
    policy = f"default-src 'none'; style-src 'unsafe-inline'{more}; sandbox"
    return Response(content, media_type=type, headers={"Content-Security-Policy": policy})


def _add_health(app: FastAPI, service: Service) -> None:
    @app.get("/health", response_model=schemas.Status, tags=["health"])
    async def health() -> Response:
        """Whether the process answers."""
        return json_response({"status": "ok"})

    @app.get(
        "/ready",
        response_model=schemas.Status,
        responses={503: {"model": schemas.Problem}},
        tags=["health"],
    )
    async def ready() -> Response:
        """Whether the collection can be searched."""
        try:
            await service.read(service.collection.check)
        except (CutShortError, NotReadyError):
            raise
        except OtherModelError as error:
            raise ProblemError(
                503, "The index was built anew, by another model; restart the server."
            ) from error
        except CcalError as error:
            _log.error("not ready: %s", error)
            raise ProblemError(503, "The collection cannot be read.") from error
        if not service.batcher.alive:
            raise ProblemError(503, "Queries are not being answered.")
        return json_response({"status": "ready"})

    @app.get("/metrics", response_class=Response, tags=["health"])
    async def metrics() -> Response:
        """Counts and times, for Prometheus."""
        items = await service.read(service.collection.counts)
        text = service.metrics.text(service.batcher.waiting, items)
        return Response(text, media_type=CONTENT_TYPE_LATEST)


class _Page(StaticFiles):
    """Files of the page; browsers ask each time whether a file has changed (ETag)."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """The file, with the header for caches."""
        response = await super().get_response(path, scope)
        response.headers["Cache-Control"] = "no-cache"
        return response


def _add_page(app: FastAPI) -> None:
    for suffix, type in _TYPES.items():
        mimetypes.add_type(type, suffix)
    files = _Page(directory=Path(__file__).with_name("static"))
    app.mount("/static", files)

    @app.get("/", include_in_schema=False)
    async def page(request: Request) -> Response:
        return await files.get_response("index.html", request.scope)

    @app.get("/favicon.ico", include_in_schema=False)
    async def icon(request: Request) -> Response:
        return await files.get_response("icon.svg", request.scope)
