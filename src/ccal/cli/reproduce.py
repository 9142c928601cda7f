"""`ccal reproduce`: a table of the paper, ours beside theirs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from ccal.cli.console import note
from ccal.progress import counting


def command(
    experiment: Annotated[
        str,
        typer.Argument(
            metavar="EXPERIMENT",
            help="`nottingham` (the paper's Table 4) or `nottingham-10pct` (Table 5: the first 47 "
            "training tunes).",
        ),
    ],
    tunes: Annotated[
        Path,
        typer.Argument(
            metavar="TUNES",
            help="The Nottingham tunes: ABC or MIDI files in a folder, or a store that "
            "`ccal data build` made of them.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="FOLDER", help="Where runs, table and plot are kept."),
    ],
    methods: Annotated[
        str, typer.Option(metavar="LIST", help="Methods, with commas between them.")
    ] = "ccal,dcca,learned",
    epochs: Annotated[int, typer.Option(min=1, help="At most so many for each method.")] = 12,
    batch_size: Annotated[int, typer.Option(min=2, help="Pairs a step; the paper has 1000.")] = 250,
    epoch_pairs: Annotated[
        int | None, typer.Option(min=2, show_default="all", help="Training pairs an epoch visits.")
    ] = None,
    stride: Annotated[
        int, typer.Option(min=1, help="Of the first convolutions; 1 in the paper, 2 is quicker.")
    ] = 1,
    small: Annotated[
        Literal["tunes", "pairs"],
        typer.Option(help="The small set: the paper's number of tunes (47), or of pairs (27,000)."),
    ] = "tunes",
    margin: Annotated[
        float, typer.Option(min=0, help="Of the ranking loss; 0.7 in the paper.")
    ] = 0.7,
    momentum: Annotated[
        float,
        typer.Option(min=0, max=1, help="Weight of a batch in CCA's covariances; 1 in the paper."),
    ] = 1.0,
    weight_decay: Annotated[
        float, typer.Option(min=0, help="As torch counts it; 2e-4 in the paper.")
    ] = 2e-4,
    seed: Annotated[int, typer.Option(min=0, help="Of weights and shuffling.")] = 0,
) -> None:
    """Train the paper's networks on sheet music and sound, and print its table with ours.

    The data are not part of the package. Sizes differ from the paper's (docs/results/nottingham.md
    says why), and two cores need an hour where it trained for days: what was done is written beside
    the figures. Stopped runs go on when the same command is given again.

    Example:

    `ccal reproduce nottingham-10pct nottingham/ -o runs/nottingham --epochs 10`
    """
    from ccal.experiments.nottingham import Budget, check_names, comparison, reproduce
    from ccal.music import SheetAudioStore, build_store, read_tunes
    from ccal.music.store import MANIFEST
    from ccal.training.hardware import keep_freed_memory

    wanted = [name.strip() for name in methods.split(",") if name.strip()]
    check_names(experiment, wanted)
    keep_freed_memory()
    if (tunes / MANIFEST).is_file():
        store = SheetAudioStore(tunes)
    else:
        progress = counting("rendering tunes")
        store = build_store(read_tunes(tunes), out / "store", progress=progress)
    budget = Budget(
        max_epochs=epochs,
        batch_size=batch_size,
        epoch_pairs=epoch_pairs,
        stride=stride,
        small=small,
        margin=margin,
        momentum=momentum,
        weight_decay=weight_decay,
    )
    found = reproduce(
        store,
        experiment,
        out,
        budget,
        methods=wanted,
        seed=seed,
        started=lambda name: note(f"{experiment}, {name}:"),
    )
    print(comparison(experiment, found))
    any_run = next(iter(found.values()))
    note(
        f"{any_run['training pairs']:,} training pairs of {any_run['training tunes']} tunes, "
        f"{any_run['candidates']:,} candidates. Wrote {out}/comparison.md, comparison.json and, "
        "with matplotlib (pip install 'ccal[plots]'), correlation.svg."
    )
