"""`ccal index`: items in, an index out that finds them again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ccal.cli import options as o
from ccal.cli.console import note
from ccal.errors import CcalError, InputError
from ccal.progress import counting

if TYPE_CHECKING:
    from ccal.data.items import SourceItems
    from ccal.model import DualEncoder
    from ccal.retrieval import Index, PairItems


@o.takes(o.PAIRS, without=("table", "label"))
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
        str | None,
        typer.Argument(
            metavar="INPUT",
            show_default="the run's own pairs",
            help="The table of pairs, with `--x` and `--y`. Or items of one modality: a .npy or "
            ".npz file, a .txt file with one text a line, `-` for lines from stdin, an image or a "
            "folder of images, or a table with `--column`. Or shards of one modality, also those "
            f"that `ccal encode` wrote: {o.DATASET}",
        ),
    ] = None,
    modality: Annotated[
        str | None,
        typer.Option(
            "--modality",
            "-m",
            metavar="NAME",
            help="Which of the run's two modalities INPUT is of; of pairs, the only one to index.",
        ),
    ] = None,
    split: Annotated[
        Literal["test", "valid", "train", "all"] | None,
        typer.Option(
            metavar="PART",
            show_default="all",
            help="Which of the run's own pairs to index: test, valid, train or all.",
        ),
    ] = None,
    column: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of a table with the texts, or names of image files; of shards, what to "
            "embed.",
        ),
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
        bool,
        typer.Option(
            "--float16",
            help="Keep numbers in half precision, in half the space; only for a new index.",
        ),
    ] = False,
    dims: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Keep the first N dimensions of the space; only for a new index."
        ),
    ] = None,
    codes: Annotated[
        int | None,
        typer.Option(
            metavar="BITS",
            help="Let binary codes choose candidates in large folders, which takes less memory; "
            "only for a new index.",
        ),
    ] = None,
    engine: o.Engine = "local",
    workers: o.Workers = None,
    **given: Any,
) -> None:
    """Put items into an index, a new one or one that exists, for `ccal search` to find.

    Needs a RUN, and takes the items of its own pairs, of other pairs (named as for `ccal train`) or
    of one modality. Of pairs, every photo and every caption is one item, which knows its
    counterparts. An index belongs to the model that made it; after training again, `--rebuild`
    embeds what it holds with the newer model.

    Examples:

    `ccal index runs/first -o photos.index`

    `ccal index runs/first more.csv --x photo=file --y text=caption -o photos.index`

    `ccal index runs/first photos/ --modality image -o photos.index`

    `ccal index runs/first birds.csv --column caption --metadata year -m text -o photos.index`

    `ccal index linear "features/*.parquet" -m image --column photos --id id --engine ray
    -o milvus://host:19530/photos`

    `ccal index runs/second --rebuild -o photos.index`
    """
    from ccal.runs import load_model

    model = load_model(run)
    if source is None and rebuild:
        from ccal.retrieval.models import rebuild_from_files

        given_too = (
            modality,
            column,
            id_column,
            metadata,
            key,
            float16,
            dims,
            codes,
            split,
            workers,
        )
        others = any(option not in (None, False) for option in (*given_too, *given.values()))
        if others or engine != "local":
            raise InputError(
                "--rebuild without an INPUT keeps what the index holds, and its form; it takes no "
                "--modality, --split, --column, --id, --metadata, --key, --float16, --dims, "
                "--codes, --engine, --workers, nor options of pairs."
            )
        progress = counting("embedding")
        with rebuild_from_files(out, model, model_folder=run, progress=progress) as index:
            note(f"Embedded {index.count():,} items of {index.stats().location} anew.")
        return
    if modality is not None and modality not in model.modalities:
        raise InputError(f"{run} joins {' and '.join(model.modalities)}; it has no {modality!r}.")
    form: dict[str, Any] = {"dtype": "float16" if float16 else None, "dims": dims, "codes": codes}
    if source is not None and not any(given.values()) and _are_shards(source):
        if modality is None or key is not None or rebuild or split is not None:
            raise InputError(
                "Shards need a --modality, and take no --key, --split or --rebuild; a load takes "
                "the place of items with the same ids."
            )
        columns = {"column": column, "id_column": id_column, "metadata": metadata or ()}
        _index_shards(run, modality, source, out, engine, workers, {**columns, **form})
        return
    if workers is not None or engine != "local":
        raise InputError("--engine and --workers are for shards of one modality.")
    of_pairs = source is None or any(given.values())
    if of_pairs and (column or id_column or metadata or key):
        raise InputError(
            "--column, --id, --metadata and --key belong to an INPUT of one modality; leave out "
            "--x and --y, and name its --modality."
        )
    if not of_pairs and modality is None:
        raise InputError(
            f"What is in {source}? Pairs: name them as for training, with --x and --y. Items of "
            f"one modality: add --modality {' or --modality '.join(model.modalities)}."
        )
    if split is not None and (source is not None or any(given.values())):
        raise InputError("--split is for the run's own pairs; leave INPUT, --x and --y out.")
    from ccal.retrieval import Index
    from ccal.retrieval.backends import exists

    known: dict[str, Any] = {"progress": counting(f"indexing {modality or 'items'}")}
    items: Any
    if of_pairs:
        table = None if source is None else Path(source)
        items = _pair_items(run, {**given, "table": table}, split, modality)
        count = len(items.items)
    else:
        assert source is not None
        assert modality is not None
        options = {"column": column, "id_column": id_column, "metadata": metadata or ()}
        found = _one_modality(Path(source), model, modality, key=key, **options)
        items, count = found.items, len(found.items)
        known |= {"ids": found.ids, "metadata": found.metadata, "files": found.files}
    if rebuild or not exists(out):
        known |= {**form, "dtype": form["dtype"] or "float32", "replace": rebuild}
        if not of_pairs:
            known["modality"] = modality
        with _report_if_stopped(out, 0, modality, rebuild=rebuild):
            index = Index.build(out, model, items, model_folder=run, **known)
        with index:
            _report(index, count, modality)
        return
    if float16 or dims is not None or codes is not None:
        raise InputError(f"{out} exists; --float16, --dims and --codes are for a new index.")
    with Index.open(out, model) as index:
        with _report_if_stopped(out, index.count(modality), modality):
            if of_pairs:
                index.add_pairs(items, **known)
            else:
                index.add(str(modality), items, **known)
        _report(index, count, modality)


def _are_shards(source: str) -> bool:
    from ccal.scale.shards import is_dataset

    return is_dataset(source)


def _index_shards(
    run: Path,
    modality: str,
    source: str,
    location: str,
    engine: o.EngineName,
    workers: int | None,
    options: dict[str, Any],
) -> None:
    from ccal.retrieval import Index
    from ccal.scale.engines import make_engine
    from ccal.scale.indexing import index_dataset
    from ccal.scale.shards import open_dataset

    dataset, progress = open_dataset(source), counting(f"indexing {modality}")
    by = make_engine(engine, workers)
    count = index_dataset(dataset, run, modality, location, by, progress=progress, **options)
    with Index.open(location) as index:
        _report(index, count, modality)


def _pair_items(
    run: Path, given: dict[str, Any], split: str | None, modality: str | None
) -> PairItems:
    """The items of a run's own pairs, or of those that options describe."""
    from ccal.retrieval.run_index import run_items, source_items
    from ccal.runs import Run

    if any(given.values()):
        return source_items(o.make_source(given, {}), modality=modality, note=note)
    return run_items(Run.open(run), part=split or "all", modality=modality)


def _one_modality(source: Path, model: DualEncoder, modality: str, **options: Any) -> SourceItems:
    """The items of a file or folder."""
    from ccal.data.items import read_items
    from ccal.features import reads_images

    images = reads_images(model.front_ends.get(modality))
    found = read_items(source, images=images, **options)
    for text in found.notes:
        note(text)
    return found


@contextmanager
def _report_if_stopped(
    location: str, before: int, modality: str | None, *, rebuild: bool = False
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


def _report(index: Index, count: int, modality: str | None) -> None:
    stats = index.stats()
    held = " and ".join(f"{number:,} {name}" for name, number in stats.counts.items())
    what = f"{modality} items" if modality else "items"
    note(f"Added {count:,} {what} to {stats.location}, which holds {held or 'no'} items.")
