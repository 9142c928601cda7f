"""`ccal train`: from pairs to a run."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ccal.cli import options as o
from ccal.cli.console import note, note_warnings, training
from ccal.errors import InputError
from ccal.runs.config import read_config

if TYPE_CHECKING:
    from ccal.data import Source


@o.takes(o.PAIRS, o.SPLIT, o.TRAINING)
def command(
    out: Annotated[
        Path | None,
        o.output(
            "--out",
            "-o",
            metavar="RUN",
            show_default="runs/DATA-METHOD",
            help="The folder to write; new or empty, unless `--resume`.",
        ),
    ] = None,
    resume: Annotated[
        bool, o.output("--resume", help="Go on with the run in `--out`, where it was stopped.")
    ] = False,
    tensorboard: Annotated[
        bool, o.output("--tensorboard", help="Write curves for TensorBoard, too.")
    ] = False,
    no_report: o.NoReport = False,
    quiet: o.Quiet = False,
    **given: Any,
) -> None:
    """Learn a common space from pairs, and measure it on pairs that were kept back.

    Needs pairs: a table with a column for each modality (texts, or names of image files), two array
    files whose rows belong together, or a table and an array file. Texts become TF-IDF features,
    and a network for images turns photos into features. Writes a folder, the RUN: config.toml,
    metrics.jsonl, model/, dimensions.json, evaluation.json, report.html and plots/.

    Examples:

    `ccal train photos.csv --x photo --y caption -o runs/photos`

    `ccal train --x images.npy --y texts.npy -o runs/first`

    `ccal train pairs.jsonl --x image=features.npy --y text=captions --method ccal`

    `ccal train birds.jsonl --x image=features.npy --y text=captions --label class --split-by label
    --select classes`

    `ccal train --resume -o runs/first`

    Flags win over `--set`, these over `--config`, and that over `--preset`.
    """
    from ccal import runs
    from ccal.runs.training import default_folder

    file, file_data = read_config(given["config"])
    source: Source | None = None
    if resume:
        if out is None:
            raise InputError("--resume needs --out, the folder of the run to go on with.")
        # The run's own settings with those that are given again, which must be the same.
        run = runs.load(out, finished=False)
        own = {} if given["preset"] or "preset" in file else run.settings.as_dict()
        settings = o.make_settings(given, {**own, **file})
        if o.any_data_options(given) or file_data:
            source = o.make_source(given, {**run.source.as_dict(), **file_data})
    else:
        settings = o.make_settings(given, file)
        source = o.make_source(given, file_data)
        out = out or default_folder(source, settings.method)
    name = shlex.quote(str(out))
    with training(go_on=f"continue with: ccal train --resume -o {name}"):
        run = runs.train(
            source,
            settings,
            out,
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
        note(f"Wrote {run.path}. {look}: ccal info {name}, or ccal serve {name}")
