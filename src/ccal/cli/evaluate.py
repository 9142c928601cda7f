"""`ccal evaluate`: how well a run finds counterparts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ccal.cli import options as o
from ccal.cli.console import note
from ccal.errors import InputError


@o.takes(
    o.PAIRS,
    o.SPLIT,
    without=("split_by", "train_classes", "valid", "test", "split_seed", "allow_leaks"),
)
def command(
    run: o.RunFolder,
    split: Annotated[
        Literal["test", "valid", "train", "all"] | None,
        typer.Option(
            show_default="test; all of other data",
            help="Which of the run's pairs, by the run's own split.",
        ),
    ] = None,
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
    ] = "pessimistic",
    bootstrap: Annotated[
        int, typer.Option(metavar="DRAWS", help="Draws for the 95% intervals; 0 for none.")
    ] = 1000,
    as_json: o.Json = False,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Write a page with plots, too.")
    ] = None,
    trec: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write rankings and judgements for trec_eval, too."),
    ] = None,
    k: Annotated[int, typer.Option("-k", help="Candidates a query in the TREC files.")] = 100,
    force: Annotated[
        bool, typer.Option("--force", help="Go on although the run's data have changed since.")
    ] = False,
    **given: Any,
) -> None:
    """Measure how well each modality of a run finds the other.

    Needs a RUN, and takes its own test pairs. With `--x` and `--y` (and a TABLE) it takes other
    pairs of the same two modalities: all of them, or those that `--split-column` calls test.

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
    from ccal import runs

    if k < 1:
        raise InputError(f"-k must be 1 or more, got {k}.")
    if report is not None and report.suffix not in (".html", ".htm"):
        raise InputError(f"--report {report}: expected a file that ends in .html.")
    found = runs.evaluate(
        run,
        o.make_source(given, {}) if o.any_data_options(given) else None,
        split=split,
        classes=classes,
        ties=ties,
        bootstrap=bootstrap,
        force=force,
        report=report,
        note=note,
    )
    if trec is not None:
        for path in found.export_trec(trec, k=k):
            note(f"Wrote {path}")
    if report is not None and report.is_file():
        note(f"Wrote {report}")
    print(json.dumps(found.as_dict(), indent=1) if as_json else found)
    for text in found.warnings:
        note(f"warning: {text}")
