"""`ccal evaluate`: how well a run finds counterparts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ccal.cli import options as o
from ccal.cli.console import note
from ccal.cli.sources import any_data_options, make_source
from ccal.errors import InputError

if TYPE_CHECKING:
    from ccal.data import Data, Pairs
    from ccal.runs import Run

__all__ = ["NAME", "command"]

NAME = "evaluate"


def command(
    context: typer.Context,
    run: o.RunFolder,
    table: o.Table = None,
    x: o.X = None,
    y: o.Y = None,
    split: Annotated[
        Literal["test", "valid", "train", "all"] | None,
        typer.Option(
            show_default="test; all of other data",
            help="Which of the run's pairs, by the run's own split.",
        ),
    ] = None,
    files: o.Files = None,
    layout: o.LayoutName = None,
    label: o.Label = None,
    group: o.Group = None,
    captions: o.Captions = None,
    skip_bad_rows: o.SkipBadRows = None,
    split_column: o.SplitColumn = None,
    classes: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of classes in the run's own table, if it was trained without `--label`.",
        ),
    ] = None,
    ties: Annotated[
        Literal["optimistic", "pessimistic"],
        typer.Option(help="Equal scores count for the right candidate, or against it."),
    ] = "optimistic",
    bootstrap: Annotated[
        int, typer.Option(metavar="DRAWS", help="Draws for the 95% intervals; 0 for none.")
    ] = 1000,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="Write a page with plots, too."),
    ] = None,
    trec: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write rankings and judgements for trec_eval, too."),
    ] = None,
    k: Annotated[int, typer.Option("-k", help="Candidates a query in the TREC files.")] = 100,
    force: Annotated[
        bool,
        typer.Option("--force", help="Go on although the run's data have changed since."),
    ] = False,
) -> None:
    """Measure how well each modality of a run finds the other.

    Needs a RUN; its own test pairs are the default. With `--x` and `--y` (and a TABLE) the pairs
    are others, of the same two modalities, and all of them count unless `--split-column` is given.

    Examples:

    `ccal evaluate runs/first`

    `ccal evaluate runs/first --split valid --json`

    `ccal evaluate runs/first other.csv --x image=other.npy --y text --report other.html`

    R@k: share of queries with their counterpart among the first k. MR: median rank. MRR: mean of
    1 / rank.

    Pairs with labels also say how classes are found. AP@50: share of the class among the first 50
    items, for one query a class (the mean of its texts) and for every text alone; and how many
    items are nearest to the query of their own class.
    """
    from ccal.cli.work import judge, write_page
    from ccal.runs import Run

    if k < 1:
        raise InputError(f"-k must be 1 or more, got {k}.")
    if report is not None and report.suffix not in (".html", ".htm"):
        raise InputError(f"--report {report}: expected a file that ends in .html.")
    opened = Run.open(run)
    pairs, part, train = _pairs(opened, context.params)
    model = opened.model()
    judgement = judge(model, pairs, part, train=train, ties=ties, bootstrap=bootstrap)
    if trec is not None:
        from ccal.evaluation import export_trec
        from ccal.training import embed_pairs

        x_, y_, groups, names = embed_pairs(model, pairs).shared_first()
        for path in export_trec(trec, x_, y_, groups=groups, k=k, names=names):
            note(f"Wrote {path}")
    if report is not None:
        facts = {"run": str(opened.path), "method": opened.settings.method, "pairs": part}
        title = f"{opened.path.name}: {part}"
        write_page(report, title, judgement, facts, opened, shown=(model, pairs))
        if report.is_file():
            note(f"Wrote {report}")
    print(json.dumps(judgement.as_dict(), indent=1) if as_json else judgement)
    for text in judgement.warnings:
        note(f"warning: {text}")


def _pairs(run: Run, params: Mapping[str, Any]) -> tuple[Pairs, str, Pairs | None]:
    """The pairs to evaluate, what they are called, and the training pairs if they are known."""
    from ccal.data import read_source

    split = params["split"]
    if not any_data_options(params):
        data = read_source(run.source)
        try:
            run.check_unchanged(data.facts())
        except InputError as error:
            if not params["force"]:
                raise InputError(f"{error} Go on with --force.") from error
            note(f"warning: {error}")
        part = split or ("test" if len(data.split.test) else "valid")
        if params["classes"] is not None:
            data = _with_classes(run, data, params["classes"])
        pairs = data.pairs if part == "all" else data.part(part)
        if len(pairs) == 0:
            raise InputError(f"The split of {run.path} has no {part} pairs.")
        if part != "test":
            # Validation pairs, too: training chooses by them, and may train on them in the end.
            note(f"warning: training has used {part} pairs; new ones may do worse.")
        return pairs, part, data.part("train")
    if params["classes"] is not None:
        raise InputError("--classes is for the run's own pairs; for others there is --label.")
    # Other pairs: nothing to train on, so a random split has nothing to say.
    source = make_source({**params, "valid": "0", "test": "0"}, {})
    data = read_source(source)
    for text in data.notes:
        note(f"warning: {text}")
    names = tuple(run.found["modalities"])
    if data.pairs.names != names:
        raise InputError(
            f"{run.path} joins {' and '.join(names)}, these pairs are of "
            f"{' and '.join(data.pairs.names)}; name them, as in --x {names[0]}=WHAT."
        )
    part = split or ("all" if source.split_column is None else "test")
    if part != "all" and source.split_column is None:
        raise InputError(f"--split {part} of other data needs --split-column.")
    pairs = data.pairs if part == "all" else data.part(part)
    if len(pairs) == 0:
        raise InputError(f"There are no {part} pairs in these data.")
    return pairs, part, None


def _with_classes(run: Run, data: Data, column: str) -> Data:
    """The same pairs and split, with the labels in a column of the run's table."""
    from dataclasses import replace

    from ccal.data import Pairs

    if run.source.table is None or run.source.layout is not None:
        raise InputError(f"--classes {column}: the pairs of {run.path} come from no table.")
    from ccal.data import read_source

    labelled = read_source(replace(run.source, label=column)).pairs
    if len(labelled) != len(data.pairs):
        raise InputError(
            f"--classes {column}: {len(data.pairs) - len(labelled):,} of {len(data.pairs):,} pairs "
            "have no class in this column."
        )
    columns = {name: data.pairs.column(name) for name in data.pairs.names}
    pairs = Pairs(columns, label=labelled.label, group=data.pairs.group)
    return replace(data, pairs=pairs)
