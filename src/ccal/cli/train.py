"""`ccal train`: from pairs to a run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccal.cli import options as o
from ccal.cli.config import make_settings, read_config
from ccal.cli.console import note
from ccal.cli.sources import any_data_options, make_source, read_source
from ccal.errors import InputError

if TYPE_CHECKING:
    from ccal.data import Data, Source
    from ccal.runs import Run
    from ccal.training import Settings

__all__ = ["NAME", "command"]

NAME = "train"


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
        bool,
        typer.Option("--resume", help="Go on with the run in `--out`, where it was stopped."),
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
    from ccal.training import distributed_from_environment

    params = context.params
    with distributed_from_environment(), ExitStack() as alone:
        run, data = _reopen(params, alone) if resume else _begin(params, alone)
        if data is None:
            note(f"{run.path} has finished already; see: ccal info {_quoted(run)}")
            return
        if not quiet:
            found = run.found
            note(
                f"{found['train']:,} training, {found['valid']:,} validation and "
                f"{found['test']:,} test pairs of {' and '.join(found['modalities'])}; "
                f"method {run.settings.method}"
            )
        _work(run, data, params)


def _work(run: Run, data: Data, params: Mapping[str, Any]) -> None:
    from ccal.cli.work import train_run

    judgement = train_run(
        run,
        data,
        resume=params["resume"],
        progress=not params["quiet"],
        go_on=f"continue with: ccal train --resume -o {_quoted(run)}",
        report=not params["no_report"],
        tensorboard=params["tensorboard"],
    )
    if judgement is None:  # another rank speaks
        return
    if judgement.part == "valid":
        note("There are no test pairs; these are the validation pairs, seen while training.")
    print(judgement)
    for text in judgement.warnings:
        note(f"warning: {text}")
    if not params["quiet"]:
        page = run.path / "report.html"
        look = f"Look at {page}, or try" if page.is_file() else "Try"
        note(f"Wrote {run.path}. {look}: ccal info {_quoted(run)}")


def _quoted(run: Run) -> str:
    """The run's folder for a command to copy."""
    return shlex.quote(str(run.path))


def _begin(params: Mapping[str, Any], alone: ExitStack) -> tuple[Run, Data]:
    """A new run and its data; until `alone` is closed, no other process works in its folder."""
    from ccal.cli.work import check_classes
    from ccal.files import alone_in
    from ccal.runs import Run, check_free
    from ccal.training.parallel import from_rank_0

    file, file_data = read_config(params["config"])
    settings = make_settings(params, file)
    source = make_source(params, file_data)
    check_classes(settings, source)
    out = params["out"] or _default_folder(settings, source)
    # Before the data are read, which may take long; ranks must all look before the first writes.
    from_rank_0(lambda: check_free(out))
    data = read_source(source)

    def create() -> Run:
        alone.enter_context(alone_in(out))
        return Run.create(out, settings, source, data.facts())

    return from_rank_0(create), data


def _reopen(params: Mapping[str, Any], alone: ExitStack) -> tuple[Run, Data | None]:
    """The run to go on with, and its data unless it has finished.

    Options that are given again must say what they said at first.
    """
    from ccal.files import alone_in
    from ccal.runs import Run, differences
    from ccal.training.parallel import from_rank_0

    if params["out"] is None:
        raise InputError("--resume needs --out, the folder of the run to go on with.")
    run = Run.open(params["out"], finished=False)
    if run.finished:
        return run, None

    def finished() -> bool:
        alone.enter_context(alone_in(run.path))
        return run.finished  # by another process, just before it gave the folder free

    if from_rank_0(finished):
        return run, None
    file, file_data = read_config(params["config"])
    then, source = run.settings.as_dict(), run.source.as_dict()
    given = make_settings(
        params, {**then, **file} if params["preset"] is None and "preset" not in file else file
    )
    changes = differences(then, given.as_dict())
    if any_data_options(params) or file_data:
        now = make_source(params, {**source, **file_data}).as_dict()
        changes += [c for c in differences(source, now) if not c.startswith("folder ")]
    if changes:
        raise InputError(
            f"{run.path} was begun with other settings ({'; '.join(changes)}); "
            "leave these options out, or begin another run."
        )
    data = read_source(run.source)
    run.check_unchanged(data.facts())
    return run, data


def _default_folder(settings: Settings, source: Source) -> Path:
    file = source.table or source.views[0].file or "run"
    return Path("runs", f"{Path(file).stem}-{settings.method}")
