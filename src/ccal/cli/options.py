"""Options that several commands share, and the `Source` and `Settings` that they make."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ccal.errors import InputError
from ccal.runs.config import LAYOUT_VIEWS

if TYPE_CHECKING:
    from ccal.data import Source
    from ccal.training import Settings

_PAIRS, _SPLIT, _TRAINING = "The pairs", "Their split", "Training"

# Written out, since importing them takes torch and seconds; a test compares them.
MethodName = Literal["refined", "ccal", "dcca", "learned", "linear"]
PresetName = Literal[
    "default",
    "paper",
    "iapr-tc12",
    "flickr30k",
    "cub-cnn",
    "cub-crnn",
    "nottingham",
    "nottingham-10pct",
]

DATA = (
    *("table", "layout", "x", "y", "files", "label", "group", "captions", "skip_bad_rows"),
    *("split_column", "split_by", "valid", "test", "split_seed"),
)
"""Options that describe a `Source`, by the names of its fields."""

FLAGS = {
    "method": "method",
    "dim": "dim",
    "epochs": "max_epochs",
    "batch_size": "batch_size",
    "learning_rate": "learning_rate",
    "precision": "precision",
    "select": "select",
    "seed": "seed",
}
"""Options that are a setting of their own: parameter of the command -> field of `Settings`."""

RunFolder = Annotated[
    Path, typer.Argument(metavar="RUN", help="The folder that `ccal train` wrote.")
]
INPUT = (
    "A .npy or .npz file, a .txt file with one text a line, `-` for lines from stdin, an image or "
    "a folder of images, or a table with `--column`."
)
"""The help of items to embed."""
Key = Annotated[str | None, typer.Option(help="Array of a .npz file that has several.")]
Table = Annotated[
    Path | None,
    typer.Argument(
        metavar="TABLE",
        show_default=False,
        help="A .csv, .tsv, .jsonl or .parquet file with one pair a row. Without it, `--x` and "
        "`--y` are array files.",
    ),
]
LayoutName = Annotated[
    Literal["reed"] | None,
    typer.Option(
        "--layout",
        rich_help_panel=_PAIRS,
        help="TABLE is the folder of a published data set: CUB or Flowers of Reed et al. "
        "(text_c10/, lists of classes, images/ or jpg/). `--x image=features.npy` takes features "
        "of its images instead.",
    ),
]
X = Annotated[
    str | None,
    typer.Option(
        "--x",
        metavar="WHAT",
        rich_help_panel=_PAIRS,
        help="The first modality: a .npy or .npz file, or a column of TABLE. `NAME=WHAT` also "
        "names it, `NAME=FILE.npz:KEY` picks an array. With a TABLE, row i of a file belongs to "
        "row i of the table. A column may hold texts, or names of image files.",
    ),
]
Y = Annotated[
    str | None,
    typer.Option(
        "--y", metavar="WHAT", rich_help_panel=_PAIRS, help="The second modality, in the same way."
    ),
]
Files = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER",
        rich_help_panel=_PAIRS,
        show_default="the table's folder",
        help="Where the image files are that a column names.",
    ),
]
Label = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", rich_help_panel=_PAIRS, help="Column of the pairs' classes."),
]
Group = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        rich_help_panel=_PAIRS,
        help="Column of what pairs show, such as the photo of a caption. A group is never split.",
    ),
]
Captions = Annotated[
    Literal["separate", "concatenate"] | None,
    typer.Option(
        rich_help_panel=_PAIRS,
        show_default="separate",
        help="A list of texts in one row: a pair each, or one long text.",
    ),
]
SkipBadRows = Annotated[
    bool | None,
    typer.Option(
        "--skip-bad-rows",
        rich_help_panel=_PAIRS,
        help="Report rows that cannot be read and go on, instead of refusing the data.",
    ),
]
SplitColumn = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN", rich_help_panel=_SPLIT, help="Column that says train, valid or test."
    ),
]
SplitBy = Annotated[
    Literal["random", "group", "label"] | None,
    typer.Option(
        rich_help_panel=_SPLIT,
        show_default="group if there is one, else random",
        help="What is never split apart: the pairs of a group, or of a label (unseen classes).",
    ),
]
ValidShare = Annotated[
    str | None,
    typer.Option(
        "--valid",
        metavar="SIZE",
        rich_help_panel=_SPLIT,
        show_default="0.1",
        help="Validation pairs, which decide when to stop: a fraction (0.1) or a number (500).",
    ),
]
TestShare = Annotated[
    str | None,
    typer.Option(
        "--test",
        metavar="SIZE",
        rich_help_panel=_SPLIT,
        show_default="0.1",
        help="Test pairs, kept for the evaluation: a fraction or a number.",
    ),
]
SplitSeed = Annotated[
    int | None,
    typer.Option(rich_help_panel=_SPLIT, show_default="0", help="Draws another random split."),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE.toml",
        rich_help_panel=_TRAINING,
        help="Settings in a table `train`, data options in a table `data`; a run's config.toml "
        "repeats that run.",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        rich_help_panel=_TRAINING,
        help="Any setting by name, as `--set margin=0.3`; as often as needed.",
    ),
]
Preset = Annotated[
    PresetName | None,
    typer.Option(
        rich_help_panel=_TRAINING,
        show_default="default",
        help="Settings to start from: ours, or those of the paper's experiments.",
    ),
]
Dim = Annotated[
    int | None,
    typer.Option(
        rich_help_panel=_TRAINING,
        show_default="chosen for the method",
        help="Features of the common space.",
    ),
]
Epochs = Annotated[
    int | None,
    typer.Option(
        rich_help_panel=_TRAINING,
        show_default="60",
        help="Passes over the training pairs, at most. Left out, the residual tower that `refined` "
        "tries has 300.",
    ),
]
BatchSize = Annotated[
    int | None,
    typer.Option(
        rich_help_panel=_TRAINING,
        show_default="1000",
        help="Pairs a step. Left out, the residual tower has 500.",
    ),
]
LearningRate = Annotated[
    float | None,
    typer.Option(
        rich_help_panel=_TRAINING,
        show_default="0.0002",
        help="To begin with. Left out, the residual tower has 0.001.",
    ),
]
Precision = Annotated[
    Literal["float32", "bf16"] | None,
    typer.Option(
        rich_help_panel=_TRAINING,
        show_default="float32",
        help="bf16 is faster where the hardware knows it.",
    ),
]
Select = Annotated[
    Literal["both", "x->y", "y->x", "classes"] | None,
    typer.Option(
        rich_help_panel=_TRAINING,
        show_default="both",
        help="What decides on the validation pairs: MRR of one direction or both, or `classes`: "
        "AP@50 of classes, for labels that training does not see (needs `--label`).",
    ),
]
NoReport = Annotated[
    bool, typer.Option("--no-report", help="Leave out the page and the plots, which take seconds.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the result only.")]


def any_data_options(params: Mapping[str, Any]) -> bool:
    """Whether a command was told anything about its data."""
    return any(params.get(name) is not None for name in DATA)


def make_source(params: Mapping[str, Any], file: Mapping[str, Any]) -> Source:
    """The source that a command's options describe, over the [data] table of its file."""
    from ccal.data import Source

    given = {name: params[name] for name in DATA if params.get(name) is not None}
    for name in ("valid", "test"):
        if name in given:
            given[name] = _size(f"--{name}", given[name])
    if "table" in given:
        given["table"] = str(given["table"])
    if given.get("layout", file.get("layout")) is not None:
        given = {**{k: v for k, v in LAYOUT_VIEWS.items() if k not in file}, **given}
    values: dict[str, Any] = {**file, **given}
    if values.get("x") is None or values.get("y") is None:
        lacking = " and ".join(f"--{name}" for name in ("x", "y") if values.get(name) is None)
        raise InputError(
            f"{lacking} missing: which two things belong together? For arrays: --x images.npy "
            "--y texts.npy; for a table: pairs.csv --x image --y text; for a published data set: "
            "its folder and --layout."
        )
    here = os.getcwd()
    if file.get("folder", here) != here:
        # Paths in options start at the current folder, those in a file at the file's own.
        given = _from_here(given, has_table=values.get("table") is not None)
    return Source.from_mapping({**file, **given, "folder": file.get("folder", here)})


def make_settings(params: Mapping[str, Any], file: Mapping[str, Any], **changes: Any) -> Settings:
    """Settings from a preset, the [train] table of a file, `--set` and flags; the later win."""
    from ccal.training import Settings

    file = dict(file)
    of_file = file.pop("preset", None)
    preset = params.get("preset") or of_file or "default"
    flags = {field: params[name] for name, field in FLAGS.items() if params.get(name) is not None}
    given = {**file, **parse_set(params.get("set") or ()), **flags, **changes}
    return Settings.preset(preset, **given)


def parse_set(entries: Iterable[str]) -> dict[str, Any]:
    """The values of `--set name=value`, written as in TOML; what is no TOML is text.

    >>> parse_set(["margin=0.3", "hidden_y=[512, 512]", "loss=ranking"])
    {'margin': 0.3, 'hidden_y': [512, 512], 'loss': 'ranking'}
    """
    values = {}
    for entry in entries:
        name, equals, text = (part.strip() for part in entry.partition("="))
        if not (name and equals and text):
            raise InputError(f"--set takes NAME=VALUE, as in --set margin=0.3; got {entry!r}.")
        try:
            values[name] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            values[name] = text
    return values


def _size(option: str, text: str) -> float | int:
    """A fraction such as 0.1, or a number such as 500."""
    try:
        return int(text) if text.lstrip("+-").isdigit() else float(text)
    except ValueError as error:
        raise InputError(f"{option} must be a fraction or a whole number, got {text!r}.") from error


def _from_here(given: Mapping[str, Any], *, has_table: bool) -> dict[str, Any]:
    """Options with their relative paths made absolute."""
    from ccal.data import View

    values = dict(given)
    for name in {"table", "files"} & set(values):
        values[name] = str(Path(values[name]).absolute())
    for name in {"x", "y"} & set(values):
        view = View.of(values[name], table=has_table)
        if view.file is not None:
            key = f":{view.key}" if view.key else ""
            values[name] = f"{view.name}={Path(view.file).absolute()}{key}"
    return values
