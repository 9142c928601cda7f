"""`ccal reproduce`: a table of the paper, ours beside theirs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from ccal.cli.console import note, training
from ccal.cli.options import parse_set
from ccal.errors import InputError


def command(
    table: Annotated[
        str | None,
        typer.Argument(
            metavar="TABLE",
            show_default=False,
            help="iapr-tc12 (the paper's Table 2), flickr30k (3), nottingham (4), nottingham-10pct "
            "(5), cub or flowers (6), or flickr8k (ours). Left out: a list of them.",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Argument(
            metavar="DATA",
            show_default=False,
            help="The folder of the data set as published, or with pairs.jsonl and "
            "image_features.npy; for Nottingham the tunes, or a store of `ccal data build`.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FOLDER",
            show_default="runs/TABLE",
            help="Where runs, table and figures are kept.",
        ),
    ] = None,
    budget: Annotated[
        Literal["paper", "medium", "small"],
        typer.Option(
            help="`paper`: its own settings. `small` and `medium` scale epochs, stride, batch and "
            "pairs for two cores: minutes or an hour a network."
        ),
    ] = "paper",
    repeats: Annotated[
        int, typer.Option(min=1, help="Trainings of each method with other seeds; the paper: 10.")
    ] = 1,
    grid: Annotated[
        bool,
        typer.Option(
            "--grid",
            help="Choose margin and learning rate of each method on the validation pairs, and show "
            "the grid.",
        ),
    ] = False,
    margins: Annotated[
        str | None,
        typer.Option(
            metavar="LIST", show_default="0.2,0.5,0.7,1", help="Margins that the grid tries."
        ),
    ] = None,
    rates: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            show_default="0.0005,0.001,0.002",
            help="Learning rates that the grid tries.",
        ),
    ] = None,
    variant: Annotated[
        Literal["paper", "released"],
        typer.Option(
            help="Losses as the paper prints them (sums, x -> y), or as its released code computes "
            "them (means; learned projections in both directions)."
        ),
    ] = "paper",
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            show_default="all",
            help="Rows, with commas between them: linear, dcca, learned, ccal, ours; for cub and "
            "flowers linear, cnn-ccal, crnn-ccal, ..., ours.",
        ),
    ] = None,
    pairs: Annotated[
        int | None,
        typer.Option(
            min=2,
            metavar="N",
            show_default="the first 47 tunes in Table 5, all in Table 4",
            help="Nottingham: train on the first tunes that have N pairs; 27000 is the paper's "
            "number in Table 5.",
        ),
    ] = None,
    features: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.npy",
            help="Image features in the order of the data set, in place of the image files.",
        ),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, show_default="one a core", help="Trainings side by side.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Any setting of the trained methods, as `--set margin=1`; the table names it.",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the table only.")] = False,
) -> None:
    """Train the methods of a table of the paper, and print it with ours beside the published rows.

    Without arguments it lists the tables: what each needs, how large it is, how long it takes. The
    settings are the paper's own unless you change them, and the first line of every table says
    which differ. Linear CCA and ccal's default are rows of every table. Stopped runs go on when the
    same command is given again. Writes table.txt, table.md, table.json, table.html, correlation.svg
    and curves.svg.

    Examples:

    `ccal reproduce`

    `ccal reproduce nottingham-10pct nottingham/ --budget small --repeats 3`

    `ccal reproduce flickr30k flickr30k/ --repeats 10 --grid`

    `ccal reproduce cub cvpr2016_cub/ --methods linear,cnn-ccal,cnn-dcca,ours`
    """
    from ccal.experiments.paper_tables import Plan, table_of
    from ccal.experiments.reproduction import default_folder, list_tables, reproduce

    if table is None:
        print(list_tables())
        return
    paper = table_of(table)
    if data is None:
        from ccal.experiments.paper_data import expected_files

        raise InputError(
            f"{table} needs DATA, the folder of the data set.\n{expected_files(paper)}"
        )
    plan = Plan(budget, variant, parse_set(set_ or ()), pairs)
    if pairs is not None and paper.kind != "sheet-audio":
        raise InputError("--pairs is for nottingham and nottingham-10pct.")
    folder = out or default_folder(paper, plan)
    rows = None if methods is None else [m.strip() for m in methods.split(",") if m.strip()]
    with training(go_on="give the same command again to go on."):
        found = reproduce(
            table,
            data,
            folder,
            plan,
            rows=rows,
            repeats=repeats,
            grid=_grid(grid, margins, rates),
            jobs=jobs,
            features=features,
            progress=not quiet,
            note=(lambda text: None) if quiet else note,
        )
    print(found)
    if not quiet:
        page = folder / "table.html"
        # Without matplotlib there is none.
        look = f" Look at {page}" if page.is_file() else ""
        note(f"Wrote {folder}/table.txt, table.md and table.json.{look}")


def _grid(grid: bool, margins: str | None, rates: str | None) -> bool | dict[str, list[float]]:
    """The values of the grid that were given; `--margins` and `--rates` ask for a grid."""
    given = {"margin": ("--margins", margins), "learning_rate": ("--rates", rates)}
    values = {n: _numbers(option, text) for n, (option, text) in given.items() if text is not None}
    return values or grid


def _numbers(option: str, text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise InputError(
            f"{option} takes numbers with commas between them, as {option} 0.5,1; got {text!r}."
        ) from error
