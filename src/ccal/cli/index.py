"""`ccal index`: items in, an index out that finds them again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccal.cli import options as o
from ccal.cli.console import note
from ccal.errors import CcalError, InputError
from ccal.progress import counting

if TYPE_CHECKING:
    from ccal.retrieval import Index


def command(
    run: o.RunFolder,
    out: Annotated[
        str,
        o.out(
            metavar="LOCATION",
            help="A folder, `postgresql://user@host/database?table=NAME`, or "
            "`milvus://host:19530/NAME` (`http://` and `https://` as well).",
        ),
    ],
    source: Annotated[
        Path | None, typer.Argument(metavar="INPUT", show_default=False, help=o.INPUT)
    ] = None,
    modality: Annotated[
        str | None,
        typer.Option("--modality", "-m", help="Which of the run's two modalities INPUT is of."),
    ] = None,
    column: Annotated[
        str | None, typer.Option(help="Column of a table with the texts, or names of image files.")
    ] = None,
    id_column: Annotated[
        str | None, typer.Option("--id", metavar="COLUMN", help="Column of a table with the ids.")
    ] = None,
    metadata: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN", help="Column of a table to keep and filter by; as often as needed."
        ),
    ] = None,
    key: o.Key = None,
    rebuild: Annotated[
        bool,
        typer.Option(
            "--rebuild",
            help="Embed all that the index holds anew, from the files and texts it knows; with an "
            "INPUT, put that in place of all it holds. Either is one step.",
        ),
    ] = False,
    float16: Annotated[
        bool, typer.Option("--float16", help="Half the space, about three digits; for a new one.")
    ] = False,
    dims: Annotated[
        int | None, typer.Option(help="Keep the leading canonical dimensions; for a new one.")
    ] = None,
    codes: Annotated[
        int | None,
        typer.Option(
            metavar="BITS",
            help="Let binary codes choose candidates in large folders, which takes less memory; "
            "for a new one.",
        ),
    ] = None,
) -> None:
    """Put items into an index, a new one or one that exists, for `ccal search` to find.

    Needs a RUN and items of one of its modalities. An index belongs to the model that made it;
    after training again, `--rebuild` embeds what it holds with the newer model.

    Examples:

    `ccal index runs/first photos/ --modality image -o photos.index`

    `ccal index runs/first birds.csv --column caption --metadata year -m text -o photos.index`

    `ccal index runs/second --rebuild -o photos.index`
    """
    from ccal.runs import load_model

    model = load_model(run)
    if source is None and rebuild:
        from ccal.retrieval.models import rebuild_from_files

        given_too = (modality, column, id_column, metadata, key, float16, dims, codes)
        if any(option not in (None, False) for option in given_too):
            raise InputError(
                "--rebuild without an INPUT keeps what the index holds, and its form; it takes no "
                "--modality, --column, --id, --metadata, --key, --float16, --dims or --codes."
            )
        progress = counting("embedding")
        with rebuild_from_files(out, model, model_folder=run, progress=progress) as index:
            note(f"Embedded {index.count():,} items of {index.stats().location} anew.")
        return
    if source is None or modality is None:
        raise InputError("Name an INPUT and its --modality, or use --rebuild.")
    if modality not in model.modalities:
        raise InputError(f"{run} joins {' and '.join(model.modalities)}; it has no {modality!r}.")
    from ccal.data.items import read_items
    from ccal.features import ImageFeatures
    from ccal.retrieval import Index
    from ccal.retrieval.backends import exists

    given = read_items(
        source,
        key=key,
        column=column,
        id_column=id_column,
        metadata=metadata or (),
        images=isinstance(model.front_ends.get(modality), ImageFeatures),
    )
    for text in given.notes:
        note(text)
    known: dict[str, Any] = {"ids": given.ids, "metadata": given.metadata, "files": given.files}
    known["progress"] = counting(f"indexing {modality}")
    if rebuild or not exists(out):
        dtype: Any = "float16" if float16 else "float32"
        known |= {"modality": modality, "dtype": dtype, "dims": dims, "codes": codes}
        known["replace"] = rebuild
        with _report_if_stopped(out, 0, modality, rebuild=rebuild):
            index = Index.build(out, model, given.items, model_folder=run, **known)
        with index:
            _report(index, len(given.items), modality)
        return
    if float16 or dims is not None or codes is not None:
        raise InputError(f"{out} exists; --float16, --dims and --codes are for a new index.")
    with Index.open(out, model) as index:
        with _report_if_stopped(out, index.count(modality), modality):
            index.add(modality, given.items, **known)
        _report(index, len(given.items), modality)


@contextmanager
def _report_if_stopped(
    location: str, before: int, modality: str, *, rebuild: bool = False
) -> Iterator[None]:
    """After Ctrl-C, report items that the index already holds, as while it is compacted.

    `before` is how many it held; after a rebuild the count does not tell new items from old ones.
    """
    from ccal.retrieval import Index
    from ccal.retrieval.backends import exists

    try:
        yield
    except KeyboardInterrupt:
        # An index that cannot be opened now is no news for a person who pressed Ctrl-C.
        with suppress(CcalError):
            if not rebuild and exists(location):
                with Index.open(location) as index:
                    if (added := index.count(modality) - before) > 0:
                        _report(index, added, modality)
        raise


def _report(index: Index, count: int, modality: str) -> None:
    stats = index.stats()
    held = ", ".join(f"{number:,} {name}" for name, number in stats.counts.items())
    note(f"Added {count:,} {modality} items to {stats.location}, which holds {held or 'none'}.")
