"""Options that several commands share, and the `Source` and `Settings` that they make."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from ccal.errors import InputError
from ccal.runs.config import LAYOUT_VIEWS

if TYPE_CHECKING:
    from ccal.data import Source
    from ccal.training import Settings

_Command = Callable[..., None]
_PANELS = (None, "The pairs", "The split", "Methods and seeds", "Training", "Output")
"""The order of a command's options in its help; those without a panel come first."""


def _panel(parameter: Parameter) -> str | None:
    panel: str | None = get_args(parameter.annotation)[1].rich_help_panel
    return panel


def _option(panel: str, kind: Any, help: str, *names: str, shown: Any = True, **more: Any) -> Any:
    """The annotation of an option that may be left out; `shown` is the default in the help."""
    more |= {"rich_help_panel": panel, "help": help, "show_default": shown}
    return Annotated[kind | None, typer.Option(*names, **more)]


def takes(*tables: dict[str, Any], without: Sequence[str] = ()) -> Callable[[_Command], _Command]:
    """Add the options of these tables to a command, which gets them by name in its `**given`."""

    def decorate(command: _Command) -> _Command:
        own = signature(command, eval_str=True)
        *parameters, _ = own.parameters.values()
        parameters = [p.replace(kind=Parameter.KEYWORD_ONLY) for p in parameters]
        parameters += [
            Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
            for table in tables
            for name, annotation in table.items()
            if name not in without
        ]
        parameters.sort(key=lambda parameter: _PANELS.index(_panel(parameter)))
        command.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        return command

    return decorate


out = partial(typer.Option, "--out", "-o")
"""The option of the place that a command writes to."""
INPUT = (
    "A .npy or .npz file, a .txt file with one text a line, `-` for lines from stdin, an image or "
    "a folder of images, or a table with `--column`."
)
"""The help of items to embed."""
DATASET = (
    "a folder or a quoted pattern of Parquet files, of .npy files (`x-0001.npy` is the column `x` "
    "of the shard 0001), or of WebDataset archives (.tar); or a URL, as `s3://bucket/folder`."
)
"""The help of a dataset of shards."""
EngineName = Literal["local", "ray"]
Engine = Annotated[
    EngineName,
    typer.Option(
        help="Who works on the shards: processes of this machine, or a Ray cluster (the one of "
        "RAY_ADDRESS, or one that is started here)."
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=1, show_default="one a processor", help="How many work at a time."
    ),
]
RunFolder = Annotated[
    Path, typer.Argument(metavar="RUN", help="The folder that `ccal train` wrote.")
]
ModelOfIndex = Annotated[
    Path | None,
    typer.Option(
        metavar="RUN",
        show_default="where it was when the index was made",
        help="Where the model is.",
    ),
]
Key = Annotated[
    str | None, typer.Option(metavar="NAME", help="Array of a .npz file that has several.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
compared = partial(typer.Option, metavar="LIST", rich_help_panel=_PANELS[3])
"""The options of what `ccal compare` compares."""
output = partial(typer.Option, rich_help_panel=_PANELS[-1])
"""The options of what a training command writes and prints."""
NoReport = Annotated[
    bool, output("--no-report", help="Leave out the page and the plots, which take seconds.")
]
Quiet = Annotated[bool, output("--quiet", "-q", help="Print the result only.")]

# Written out, since importing them takes torch and seconds; a test compares them.
MethodName = Literal["refined", "ccal", "dcca", "learned", "linear", "zero-shot"]
PresetName = Literal[
    "default",
    "fast",
    "paper",
    "iapr-tc12",
    "flickr30k",
    "cub-cnn",
    "cub-crnn",
    "nottingham",
    "nottingham-10pct",
    "ccal",
    "ccal-words",
]

TextName = Literal["auto", "tfidf", "sentences", "tfidf+sentences", "word-cnn", "word-crnn"]
LayoutName = Literal["flickr8k", "flickr30k", "karpathy", "coco", "iapr-tc12", "reed"]

_pair = partial(_option, _PANELS[1])
PAIRS = {
    "table": Annotated[
        Path | None,
        typer.Argument(
            metavar="TABLE",
            show_default=False,
            help="A .csv, .tsv, .jsonl or .parquet file with one pair a row. Without it, `--x` and "
            "`--y` are array files.",
        ),
    ],
    "x": _pair(
        str,
        "The first modality: a column of TABLE with texts or names of image files, or a .npy or "
        ".npz file, whose row i belongs to row i of TABLE. `NAME=WHAT` also names it; "
        "`NAME=FILE.npz:KEY` picks an array.",
        metavar="WHAT",
    ),
    "y": _pair(str, "The second modality, in the same way.", metavar="WHAT"),
    "files": _pair(
        str,
        "Where the image files are that a column names, or those of a `--layout`.",
        metavar="FOLDER",
        shown="the table's folder",
    ),
    "layout": _pair(
        LayoutName,
        f"TABLE is the folder of a published data set: {', '.join(get_args(LayoutName))} (CUB and "
        "Flowers of Reed et al.). `--x image=features.npy` takes features of its images instead. "
        "See docs/datasets.md.",
        metavar="NAME",
    ),
    "label": _pair(str, "Column of the pairs' classes.", metavar="COLUMN"),
    "group": _pair(
        str,
        "Column of what pairs show, such as the photo of a caption. A group is never split.",
        metavar="COLUMN",
    ),
    "captions": _pair(
        Literal["separate", "concatenate"],
        "What becomes of a list of texts in one row: `separate` makes a pair of each, "
        "`concatenate` one text of several lines.",
        metavar="HOW",
        shown="separate",
    ),
    "skip_bad_rows": _pair(
        bool,
        "Name the rows that cannot be read and go on without them, instead of stopping.",
        "--skip-bad-rows",
    ),
}
"""Options that describe pairs, by the names of the fields of a `Source`."""

_split = partial(_option, _PANELS[2])
SPLIT = {
    "split_column": _split(str, "Column that says train, valid or test.", metavar="COLUMN"),
    "split_by": _split(
        Literal["random", "group", "label"],
        "What is never split apart: the pairs of a group, or of a label (unseen classes).",
        shown="group if there is one, else random",
    ),
    "train_classes": _split(
        Literal["train", "trainval"],
        "Of `--layout reed`: `trainval` trains on the training and the validation classes, of "
        "which `--valid` are kept for validation; so does the paper for Flowers.",
        shown="train",
    ),
    "valid": _split(
        str,
        "Validation pairs, which decide when to stop: a fraction (0.1) or a number (500).",
        metavar="SIZE",
        shown="0.1",
    ),
    "test": _split(
        str,
        "Test pairs, kept for the evaluation: a fraction or a number.",
        metavar="SIZE",
        shown="0.1",
    ),
    "split_seed": _split(int, "Draws another random split.", shown="0"),
    "allow_leaks": _split(
        bool,
        "Split apart rows of one photo or one text, so that training sees what is tested.",
        "--allow-leaks",
    ),
}
"""Options that describe the split, by the names of the fields of a `Source`."""

_train = partial(_option, _PANELS[4])
TRAINING = {
    "method": _train(
        MethodName,
        "refined (linear CCA, then fine-tuned), ccal (networks with a CCA layer), dcca (deep CCA), "
        "learned (trained matrices in place of CCA), linear (linear CCA alone) or zero-shot "
        "(linear CCA for unseen classes; needs `--label` and `--split-by label`).",
        metavar="METHOD",
        shown="refined",
    ),
    "preset": _train(
        PresetName,
        f"Settings to start from: {', '.join(get_args(PresetName))}. `default`, `fast`, `ccal` and "
        "`ccal-words` (our best for networks with the CCA layer) are ours, the others the paper's.",
        metavar="PRESET",
        shown="default",
    ),
    "fast": _train(
        bool,
        "Train nothing: linear CCA with ridge, weighting and hub correction chosen by held-out "
        "pairs, in closed form. Takes seconds where the default takes a minute or more.",
        "--fast",
    ),
    "text": _train(
        TextName,
        "Features of texts: tfidf, sentences (embeddings; extra `sentences`), "
        "tfidf+sentences, or words in order for the paper's networks, word-cnn and word-crnn. "
        "`auto` is tfidf+sentences if the extra `sentences` is installed, else tfidf.",
        metavar="FEATURES",
        shown="auto",
    ),
    "backbone": _train(
        str,
        "Network for image files: efficientnet-lite0, -lite1 or -lite2, or several joined by +. "
        "`auto` joins the three for at most 5,000 images, and takes efficientnet-lite0 for more.",
        metavar="NAMES",
        shown="auto",
    ),
    "dim": _train(int, "Dimensions of the common space.", shown="chosen for the method"),
    "epochs": _train(
        int,
        "Passes over the training pairs, at most. Left out, the towers with a hidden layer that "
        "`refined` tries have 300.",
        shown="60",
    ),
    "batch_size": _train(int, "Pairs in a batch. Left out, these towers have 500.", shown="1000"),
    "learning_rate": _train(
        float, "Learning rate at the start. Left out, `refined` has 0.001.", shown="0.0002"
    ),
    "precision": _train(
        Literal["float32", "bf16"], "bf16 is faster on hardware that supports it.", shown="float32"
    ),
    "select": _train(
        Literal["both", "x->y", "y->x", "classes"],
        "What chooses the best epoch on the validation pairs: `both` (MRR of both directions), "
        "`x->y` or `y->x` (of one), or `classes` (AP@50, for classes that training does not see; "
        "needs `--label`).",
        metavar="WHAT",
        shown="both",
    ),
    "seed": _train(
        int, "Draws other initial weights, another order of pairs and dropout.", shown="0"
    ),
    "set": _train(
        list[str],
        "Any setting by name, as `--set margin=0.3`; as often as needed.",
        metavar="NAME=VALUE",
    ),
    "config": _train(
        Path,
        "Options from a file: settings in its table `train`, those of the data in its table "
        "`data`. The config.toml of a run repeats that run.",
        metavar="FILE.toml",
    ),
}

DATA = (*PAIRS, *SPLIT)
"""Options that describe a `Source`."""
FLAGS = {name: name for name in TRAINING if name not in ("preset", "fast", "set", "config")}
FLAGS["epochs"] = "max_epochs"
"""Options that are a setting of their own: name of the option -> field of `Settings`."""


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
    if params.get("fast"):
        flags["tower"] = "none"
    given = {**file, **parse_set(params.get("set") or ()), **flags, **changes}
    settings = Settings.preset(preset, **given)
    if params.get("fast") and settings.method != "refined":
        raise InputError(
            f"--fast is the default method without its training, and the method is "
            f"{settings.method}; leave one of them out."
        )
    return settings


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
