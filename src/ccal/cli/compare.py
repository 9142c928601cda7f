"""`ccal compare`: methods by seeds on the same pairs, in one table."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from ccal.cli import options as o
from ccal.cli.config import make_settings, read_config
from ccal.cli.console import note
from ccal.cli.sources import make_source, read_source
from ccal.errors import CcalError, InputError

if TYPE_CHECKING:
    from ccal.cli.work import Judgement
    from ccal.data import Data, Source
    from ccal.runs import Run
    from ccal.training import Settings

__all__ = ["NAME", "command"]

NAME = "compare"


def command(
    context: typer.Context,
    table: o.Table = None,
    x: o.X = None,
    y: o.Y = None,
    methods: Annotated[
        str, typer.Option(metavar="LIST", help="Methods, with commas between them.")
    ] = "linear,dcca,learned,ccal,refined",
    seeds: Annotated[
        str, typer.Option(metavar="LIST", help="Seeds, with commas between them.")
    ] = "0,1,2",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FOLDER",
            show_default="runs/DATA-compare",
            help="The folder to write; one that a comparison was stopped in is continued.",
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
    preset: o.Preset = None,
    dim: o.Dim = None,
    epochs: o.Epochs = None,
    batch_size: o.BatchSize = None,
    learning_rate: o.LearningRate = None,
    precision: o.Precision = None,
    set: o.Set = None,
    config: o.Config = None,
    no_report: o.NoReport = False,
    quiet: o.Quiet = False,
) -> None:
    """Train several methods with several seeds on the same pairs, and set them side by side.

    Needs pairs, as `ccal train` does. Every method and seed is a run of its own, METHOD-SEED in the
    folder; finished ones are not repeated, so that the same command goes on after a stop, and more
    methods or seeds can be added later. Writes comparison.html, comparison.csv, comparison.json and
    plots/. A page of one run: `ccal evaluate FOLDER/METHOD-SEED --report FILE.html`.

    Examples:

    `ccal compare --x images.npy --y texts.npy -o runs/which`

    `ccal compare pairs.csv --x image=photos.npy --y text --methods linear,ccal --seeds 0,1`
    """
    from ccal.cli.work import check_classes
    from ccal.files import alone_in

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InputError("`ccal compare` runs in one process; torchrun is for `ccal train`.")
    wanted = [(m, s) for m in _methods(methods) for s in _seeds(seeds)]
    file, file_data = read_config(config)
    source = make_source(context.params, file_data)
    folder = out or Path(
        "runs", f"{Path(source.table or source.views[0].file or 'x').stem}-compare"
    )
    plans = {(m, s): make_settings(context.params, file, method=m, seed=s) for m, s in wanted}
    for settings in plans.values():
        check_classes(settings, source)
    _check_folder(folder)
    data = read_source(source)
    found = data.facts()
    judgements: dict[str, list[Judgement]] = {}
    for number, ((method, seed), settings) in enumerate(plans.items(), start=1):
        if not quiet:
            note(f"{method}, seed {seed} (run {number} of {len(plans)})")
        place = folder / f"{method}-{seed}"
        with alone_in(place):
            run, begun = _open(place, settings, source, found)
            judgement = _finish(run, data, begun, context.params)
        judgements.setdefault(method, []).append(judgement)
    _write(folder, judgements, source, found, page=not no_report)
    if not quiet:
        look = "" if no_report else f" Look at {folder / 'comparison.html'}"
        note(f"Wrote {folder}.{look}")


def _methods(text: str) -> list[str]:
    known = get_args(o.MethodName)
    methods = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    for method in methods:
        if method not in known:
            raise InputError(f"--methods: there is no {method!r}; there are {', '.join(known)}.")
    if not methods:
        raise InputError(f"--methods is empty; there are {', '.join(known)}.")
    return methods


def _seeds(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isdecimal() for part in parts):
        raise InputError(f"--seeds takes whole numbers such as 0,1,2; got {text!r}.")
    return list(dict.fromkeys(map(int, parts)))


def _check_folder(folder: Path) -> None:
    """A folder for a comparison is new, empty, or holds nothing but one."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise InputError(f"{folder} is a file; name another folder with --out.")
    ours = {"comparison.html", "comparison.csv", "comparison.json", "plots"}
    methods = get_args(o.MethodName)
    for entry in folder.iterdir():
        method, _, seed = entry.name.rpartition("-")
        run = entry.is_dir() and method in methods and seed.isdecimal()
        if not run and entry.name not in ours and not entry.name.startswith("."):
            raise InputError(
                f"{folder} holds {entry.name}, which is of no comparison; name another folder "
                "with --out."
            )


def _open(
    place: Path, settings: Settings, source: Source, found: Mapping[str, Any]
) -> tuple[Run, bool]:
    """The run of one method and seed, and whether it had been begun before."""
    from ccal.runs import Run, differences, only_planned

    if not (place / "config.toml").is_file() or only_planned(place):
        return Run.create(place, settings, source, found), False
    run = Run.open(place, finished=False)
    run.check_unchanged(found)
    if changes := differences(run.settings.as_dict(), settings.as_dict()):
        raise InputError(
            f"{place} was made with other settings ({'; '.join(changes)}); compare with the "
            "same ones, or name another folder with --out."
        )
    return run, True


def _finish(run: Run, data: Data, begun: bool, params: Mapping[str, Any]) -> Judgement:
    """Train a run, or go on with it, or take it as it is."""
    from ccal.cli.work import judge, train_run

    if run.finished:
        part = run.evaluation()["part"]
        return judge(run.model(), data.part(part), part, train=data.part("train"))
    judgement = train_run(
        run,
        data,
        resume=begun,
        progress=not params["quiet"],
        go_on="run the same command again to go on.",
        report=False,  # the comparison has one, of all runs together
    )
    assert judgement is not None  # there is one process only
    return judgement


def _write(
    folder: Path,
    judgements: Mapping[str, list[Judgement]],
    source: Source,
    found: Mapping[str, Any],
    *,
    page: bool,
) -> None:
    """Print the table, and write it with the plots."""
    from ccal.cli.comparison import as_table, compare_rows, write_rows
    from ccal.runs import fingerprints, hashes

    reports = {method: [j.report for j in several] for method, several in judgements.items()}
    rows = compare_rows(reports)
    write_rows(folder, rows, hashes(found))
    print(as_table(rows))
    structures = {
        method: several[0].structure
        for method, several in judgements.items()
        if several[0].structure is not None
    }
    warnings = list(
        dict.fromkeys(
            f"{method}: {text}"
            for method, several in judgements.items()
            for judgement in several
            for text in judgement.warnings
        )
    )
    for text in warnings:
        note(f"warning: {text}")
    if not page:
        return
    facts = {
        "data": source.table or f"{source.x}, {source.y}",
        "fingerprints": fingerprints(found),
        "pairs": f"{found['train']:,} train, {found['valid']:,} valid, {found['test']:,} test",
        "seeds": str(max(map(len, reports.values()))),
    }
    try:
        from ccal.reports import save_plots, write_comparison

        write_comparison(
            folder / "comparison.html",
            title=folder.name,
            facts=facts,
            reports_by_method=reports,
            structures=structures,
            warnings=warnings,
        )
        save_plots(folder / "plots", structures=structures, reports_by_method=reports)
    except InputError:
        raise
    except CcalError as error:  # a package that only plots need
        note(f"warning: no page was written. {error}")
