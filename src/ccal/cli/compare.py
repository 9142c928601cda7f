"""`ccal compare`: methods by seeds on the same pairs, in one table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, get_args

from ccal.cli import options as o
from ccal.cli.console import note, note_warnings, training
from ccal.errors import InputError
from ccal.runs.config import read_config


@o.takes(o.PAIRS, o.SPLIT, o.TRAINING, without=("method", "seed", "fast"))
def command(
    methods: Annotated[str, o.compared(help="Methods, with commas between them.")] = (
        "linear,dcca,learned,ccal,refined"
    ),
    seeds: Annotated[
        str,
        o.compared(
            help="Seeds of weights, order and dropout, with commas between them. Three or more say "
            "how much results vary from one training to the next."
        ),
    ] = "0,1,2",
    out: Annotated[
        Path | None,
        o.output(
            "--out",
            "-o",
            metavar="FOLDER",
            show_default="runs/DATA-compare",
            help="The folder to write; one that a comparison was stopped in is continued.",
        ),
    ] = None,
    no_report: o.NoReport = False,
    quiet: o.Quiet = False,
    **given: Any,
) -> None:
    """Train several methods with several seeds on the same pairs, and set them side by side.

    Needs pairs, as `ccal train` does. Every method and seed is a run of its own, METHOD-SEED in the
    folder. Finished runs are not repeated: the same command goes on after a stop, and more methods
    or seeds can be added later. A paired test over the test queries says which methods are better
    than others. Writes comparison.html, comparison.csv, comparison.json and plots/. A page of one
    run: `ccal evaluate FOLDER/METHOD-SEED --report FILE.html`.

    Examples:

    `ccal compare --x images.npy --y texts.npy -o runs/which`

    `ccal compare pairs.csv --x image=photos.npy --y text --methods linear,ccal --seeds 0,1`

    `ccal compare birds.jsonl --x image=features.npy --y text=captions --label class --split-by
    label --select classes --methods linear,refined,zero-shot`
    """
    from ccal import runs

    wanted, numbers = _methods(methods), _seeds(seeds)
    file, file_data = read_config(given["config"])
    source = o.make_source(given, file_data)
    settings = {method: o.make_settings(given, file, method=method) for method in wanted}
    with training(go_on="run the same command again to go on."):
        table_of_methods = runs.compare(
            source,
            settings,
            methods=wanted,
            seeds=numbers,
            folder=out,
            report=not no_report,
            progress=not quiet,
            note=note_warnings if quiet else note,
        )
    print(table_of_methods)
    for text in table_of_methods.warnings:
        note(f"warning: {text}")
    if not quiet:
        folder = table_of_methods.folder
        assert folder is not None
        page = folder / "comparison.html"
        # Without matplotlib there is none.
        look = f" Look at {page}" if not no_report and page.is_file() else ""
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
