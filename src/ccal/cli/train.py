"""`ccal train`: from pairs to a run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccal.cli import options as o
from ccal.cli.console import note, note_warnings, training
from ccal.errors import InputError
from ccal.runs.config import read_config

if TYPE_CHECKING:
    from ccal.data import Source
    from ccal.training import Settings


def command(
    context: typer.Context,
    table: o.Table = None,
    x: o.X = None,
    y: o.Y = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="RUN",
            show_default="runs/DATA-METHOD",
            help="The folder to write; new or empty, unless `--resume`.",
        ),
    ] = None,
    files: o.Files = None,
    layout: o.LayoutName = None,
    label: o.Label = None,
    group: o.Group = None,
    captions: o.Captions = None,
    skip_bad_rows: o.SkipBadRows = None,
    split_column: o.SplitColumn = None,
    split_by: o.SplitBy = None,
    valid: o.ValidShare = None,
    test: o.TestShare = None,
    split_seed: o.SplitSeed = None,
    method: Annotated[
        o.MethodName | None,
        typer.Option(
            metavar="METHOD",
            rich_help_panel="Training",
            show_default="refined",
            help="refined (linear CCA, then fine-tuned), ccal (networks with a CCA layer), dcca "
            "(deep CCA), learned (trained matrices in place of CCA) or linear (linear CCA alone).",
        ),
    ] = None,
    preset: o.Preset = None,
    dim: o.Dim = None,
    epochs: o.Epochs = None,
    batch_size: o.BatchSize = None,
    learning_rate: o.LearningRate = None,
    precision: o.Precision = None,
    select: o.Select = None,
    seed: Annotated[
        int | None,
        typer.Option(
            rich_help_panel="Training", show_default="0", help="Of weights, order and dropout."
        ),
    ] = None,
    set: o.Set = None,
    config: o.Config = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in `--out`, where it was stopped.")
    ] = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write curves for TensorBoard, too.")
    ] = False,
    no_report: o.NoReport = False,
    quiet: o.Quiet = False,
) -> None:
    """Learn a common space from pairs, and measure it on pairs that were kept back.

    Needs pairs: two array files whose rows belong together, or a table with a column for each
    modality (texts become TF-IDF features; the other column may be an array file). Writes a folder,
    the RUN: config.toml, metrics.jsonl, model/, evaluation.json, report.html and plots/.

    Examples:

    `ccal train --x images.npy --y texts.npy -o runs/first`

    `ccal train pairs.jsonl --x image=features.npy --y text=captions --method ccal`

    `ccal train birds.jsonl --x image=features.npy --y text=captions --label class --split-by label
    --select classes`

    `ccal train --resume -o runs/first`

    Flags win over `--set`, these over `--config`, and that over `--preset`.
    """
    from ccal import runs

    params = context.params
    source, settings, folder = _resumed(params) if resume else _new(params)
    name = shlex.quote(str(folder))
    with training(go_on=f"continue with: ccal train --resume -o {name}"):
        run = runs.train(
            source,
            settings,
            folder,
            resume=resume,
            report=not no_report,
            tensorboard=tensorboard,
            progress=not quiet,
            note=note_warnings if quiet else note,
        )
    if run.result is None:  # another rank trained, or there was nothing to do
        note(f"{run.path} has finished already; see: ccal info {name}")
        return
    print(run.result)
    for text in run.result.warnings:
        note(f"warning: {text}")
    if not quiet:
        page = run.path / "report.html"
        look = f"Look at {page}, or try" if page.is_file() else "Try"
        note(f"Wrote {run.path}. {look}: ccal info {name}")


def _new(params: Mapping[str, Any]) -> tuple[Source, Settings, Path]:
    from ccal.runs.training import default_folder

    file, file_data = read_config(params["config"])
    settings = o.make_settings(params, file)
    source = o.make_source(params, file_data)
    return source, settings, params["out"] or default_folder(source, settings.method)


def _resumed(params: Mapping[str, Any]) -> tuple[Source | None, Settings, Path]:
    """The run's own settings with what is given again, which must be the same."""
    from ccal import runs

    if params["out"] is None:
        raise InputError("--resume needs --out, the folder of the run to go on with.")
    run = runs.load(params["out"], finished=False)
    file, file_data = read_config(params["config"])
    own = {} if params["preset"] or "preset" in file else run.settings.as_dict()
    settings = o.make_settings(params, {**own, **file})
    source = None
    if o.any_data_options(params) or file_data:
        source = o.make_source(params, {**run.source.as_dict(), **file_data})
    return source, settings, params["out"]
