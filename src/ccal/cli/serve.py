"""`ccal serve`: a collection in a browser, and for programs over HTTP."""

from __future__ import annotations

import secrets
import sys
import threading
import webbrowser
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast
from urllib.parse import parse_qsl, urlsplit

import typer

from ccal.bounds import Number, check_all
from ccal.cli import options as o
from ccal.cli.console import note, note_skipped
from ccal.errors import InputError
from ccal.progress import counting

if TYPE_CHECKING:
    from ccal.serve import Collection
    from ccal.serve.collection import Report

_access = partial(typer.Option, rich_help_panel="Access")
_limit = partial(typer.Option, rich_help_panel="Limits")
_SHORTEST_TOKEN = 16
# A folder with one of these files is a library of tunes, or a store of tunes.
_TUNES = ("library.json", "manifest.json")


def command(
    location: Annotated[
        str | None,
        typer.Argument(
            metavar="LOCATION",
            show_default="folk tunes that come with ccal",
            help="The folder of a run, an index of `ccal index`, or tunes: a file of ABC, MusicXML "
            "or MIDI, a folder of such files, or what `ccal data build` wrote.",
        ),
    ] = None,
    add: Annotated[
        list[Path] | None,
        typer.Option(metavar="BOOK", help="More tunes beside those; may be repeated."),
    ] = None,
    model: o.ModelOfIndex = None,
    host: Annotated[
        str,
        _access(
            metavar="ADDRESS",
            help="Address to listen on; 0.0.0.0 lets other machines in, so set a `--token`, too.",
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int, _access(metavar="PORT", min=0, max=65535, help="0 takes any that is free.")
    ] = 8000,
    token: Annotated[
        str | None,
        _access(
            metavar="TOKEN",
            envvar="CCAL_TOKEN",
            help="Every client must send it; `new` makes one up. The variable is safer than the "
            "option, which other users of the machine can see.",
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        _access(
            metavar="NAME",
            help="A name of the server besides localhost and this machine's name; may be repeated.",
        ),
    ] = None,
    media_root: Annotated[
        Path | None,
        _access(
            metavar="FOLDER",
            exists=True,
            file_okay=False,
            help="Show only files inside of this folder; relative paths start from it.",
        ),
    ] = None,
    open_page: Annotated[
        bool | None,
        typer.Option(
            "--open/--no-open", show_default="from a terminal", help="Open the page in a browser."
        ),
    ] = None,
    max_upload: Annotated[float, _limit(metavar="MB", help="Size of an uploaded file.")] = 20.0,
    max_seconds: Annotated[
        float, _limit(metavar="SECONDS", help="Length of the sound in an uploaded file.")
    ] = 300.0,
    max_megapixels: Annotated[float, _limit(help="Pixels of an uploaded picture.")] = 50.0,
    max_memory: Annotated[
        float, _limit(metavar="MB", help="Memory of uploaded files, decoded, of all requests.")
    ] = 1000.0,
    max_k: Annotated[int, _limit(help="Results of one search.")] = 100,
    max_batch: Annotated[int, _limit(help="Queries of one request.")] = 128,
    timeout: Annotated[
        float, _limit(metavar="SECONDS", help="Time after which a request is given up.")
    ] = 30.0,
) -> None:
    """Search, look and listen in a browser; with an HTTP API for programs.

    Serves a run, an index, or tunes; without LOCATION the folk tunes that come with ccal. The items
    of a run's own pairs are indexed the first time, in RUN/index; tunes of your own are engraved,
    played and embedded the first time, and kept in ~/.cache/ccal/books.
    Only this machine can reach it, unless `--host` says otherwise.

    Examples:

    `ccal serve`

    `ccal serve tunebook/`

    `ccal serve --add mytunes.abc`

    `ccal serve runs/first`

    `ccal serve photos.index --port 8080`

    `CCAL_TOKEN=new ccal serve photos.index --host 0.0.0.0`
    """
    from ccal.serve import Limits, create_app
    from ccal.serve.app import address, listen, run
    from ccal.serve.collection import PendingCollection
    from ccal.serve.guard import is_loopback

    sizes = {
        "--max-upload": max_upload,
        "--max-megapixels": max_megapixels,
        "--max-memory": max_memory,
    }
    check_all(dict.fromkeys(sizes, Number(above=0, at_most=1e6)), sizes)
    limits = Limits(
        upload_bytes=round(max_upload * 1e6),
        seconds=max_seconds,
        pixels=round(max_megapixels * 1e6),
        k=max_k,
        queries=max_batch,
        timeout=timeout,
        memory=round(max_memory * 1e6),
    )
    if token == "new":
        token = secrets.token_urlsafe(24)
    elif token is not None and (len(token) < _SHORTEST_TOKEN or not token.isascii()):
        raise InputError(
            f"A token needs {_SHORTEST_TOKEN} plain characters or more, so that it cannot be "
            "guessed; `--token new` makes one up."
        )
    with listen(host, port) as listener:
        collection = _collection(location, model, media_root, add or [])
        pending = collection if isinstance(collection, PendingCollection) else None
        if not is_loopback(host) and token is None:
            note(
                f"warning: everyone who can reach {host} can search this collection and see its "
                "files. Set a --token, or leave out --host."
            )
        # A browser keeps the part behind the hash to itself, so that no log has the token.
        page = address(listener) + (f"#token={token}" if token else "")

        def started() -> None:
            if pending is None:
                note(_summary(collection))
            note(f"Open {page}   (Ctrl-C stops)")
            if sys.stderr.isatty() if open_page is None else open_page:
                threading.Thread(target=webbrowser.open, args=(page,), daemon=True).start()

        app = create_app(collection, limits=limits, token=token, hosts=[*(allow_host or []), host])
        run(app, listener, started, lambda: pending is not None and pending.error is not None)
        if pending is not None and pending.error is not None:
            raise pending.error
    note("Stopped.")


def _collection(
    location: str | None, model: Path | None, root: Path | None, add: list[Path]
) -> Collection:
    """The collection at a location, or of the tunes that come with ccal."""
    from ccal.retrieval import Index
    from ccal.retrieval.models import bound_model
    from ccal.retrieval.run_index import is_run
    from ccal.serve import IndexCollection

    if location is None or _holds_tunes(location):
        return _tunes(location, model, add)
    if add:
        raise InputError(f"--add puts tunes beside tunes, and {location} holds none.")
    if is_run(location):
        return _run(location, model, root)
    index = Index.open(location)
    try:
        bound = bound_model(index, model)
        folder = model or index.binding.model_folder
        return IndexCollection(index, bound, title=_title(location), model_folder=folder, root=root)
    except BaseException:
        index.close()
        raise


def _holds_tunes(location: str) -> bool:
    """Whether a location is a library or a store of tunes, or notation, and not a run."""
    from ccal.music.tunes import NOTATION, holds_notation
    from ccal.retrieval.run_index import is_run

    path = Path(location)
    if path.is_dir() and not is_run(path):
        return any((path / name).is_file() for name in _TUNES) or holds_notation(path)
    return path.is_file() and path.suffix.lower() in NOTATION


def _tunes(location: str | None, run: Path | None, add: list[Path]) -> Collection:
    """A library of tunes; a thread builds it first if it is missing."""
    from ccal.music.default import default_model, is_ready, open_tunes
    from ccal.runs import load_model
    from ccal.serve.tune_collection import TuneCollection

    model = load_model(run) if run else default_model()
    title = "folk tunes" if location is None else _title(location)

    def make(report: Report) -> Collection:
        library = open_tunes(location, model, add=add, telling=lambda what: _telling(report, what))
        note_skipped(library.skipped)
        return TuneCollection(library, model, title=title, model_folder=run)

    if not add and is_ready(location, model):
        return make(lambda *_: None)
    note(
        "Tunes that are new are engraved, played and embedded first, a second or two each; the "
        "page answers meanwhile, and shows the progress."
    )
    return _pending(make, title)


def _run(location: str, other: Path | None, root: Path | None) -> Collection:
    """The items of a run's own pairs; a thread indexes them if that has not been done yet."""
    from ccal.retrieval.run_index import build_index, existing_index
    from ccal.runs import Run
    from ccal.serve import IndexCollection

    if other is not None:
        raise InputError(f"{location} is a run and has its model; leave --model out.")
    run = Run.open(location)
    model = run.model()
    options = {"title": _title(location), "model_folder": run.path, "root": root}
    index = existing_index(run, model)
    if index is not None:
        return IndexCollection(index, model, **options)  # type: ignore[arg-type]
    note(
        f"The first time, the items of {location} are indexed; the page answers meanwhile, and "
        "shows the progress."
    )

    def make(report: Report) -> Collection:
        report("reading the pairs", 0, 0)
        made = build_index(run, model, progress=_telling(report, "indexing items"))
        return IndexCollection(made, model, **options)  # type: ignore[arg-type]

    return _pending(make, _title(location))


def _telling(report: Report, what: str) -> Callable[[int, int], None]:
    """Progress for the page and for the terminal."""
    line = counting(what)

    def tell(done: int, total: int) -> None:
        report(what, done, total)
        line(done, total)

    return tell


def _pending(make: Callable[[Report], Collection], title: str) -> Collection:
    from ccal.serve.collection import PendingCollection

    pending = PendingCollection(make, title=title, ready=lambda made: note(_summary(made)))
    # It passes other calls on by `__getattr__`, which types cannot express.
    return cast("Collection", pending)


def _title(location: str) -> str:
    """The name of a folder, or of a database's table.

    >>> _title("data/photos.index"), _title("postgresql://me:secret@host/db?table=birds")
    ('photos', 'birds')
    """
    if "://" not in location:
        return Path(location).absolute().stem
    parts = urlsplit(location)
    return dict(parse_qsl(parts.query)).get("table") or parts.path.strip("/") or "index"


def _summary(collection: Collection) -> str:
    """Title and number of items, in a line."""
    counts = " and ".join(f"{count:,} {name}" for name, count in collection.counts().items())
    return f"Serving {collection.title}: {counts} items."
