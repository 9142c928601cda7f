"""What several commands can be told, each with its help, in groups."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

__all__ = [
    "DATA",
    "FLAGS",
    "LAYOUT_VIEWS",
    "BatchSize",
    "Captions",
    "Config",
    "Dim",
    "Epochs",
    "Files",
    "Group",
    "Label",
    "LayoutName",
    "LearningRate",
    "MethodName",
    "NoReport",
    "Precision",
    "Preset",
    "PresetName",
    "Quiet",
    "RunFolder",
    "Select",
    "Set",
    "SkipBadRows",
    "SplitBy",
    "SplitColumn",
    "SplitSeed",
    "Table",
    "TestShare",
    "ValidShare",
    "X",
    "Y",
]

_PAIRS, _SPLIT, _TRAINING = "The pairs", "Their split", "Training"

# Written out, since their home imports torch, which takes seconds; a test compares them.
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

LAYOUT_VIEWS = {"x": "image", "y": "text"}
"""What x and y are of a published data set, unless a person says so."""

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
    bool,
    typer.Option("--no-report", help="Leave out the page and the plots, which take seconds."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the result only.")]
