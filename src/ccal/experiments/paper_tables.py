"""The paper's result tables as data: published figures, rows, settings, variants and budgets.

Published figures are those of Dorfer, Schlüter, Vall, Korzeniowski and Widmer, IJMIR 2018.
"DCCA-2015" is Yan and Mikolajczyk 2015, and the rows of Reed et al. 2016 are theirs, all as the
paper quotes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ccal.bounds import Options, check
from ccal.errors import InputError
from ccal.training.settings import Settings

Kind = Literal["image-text", "sheet-audio", "zero-shot"]
Cells = tuple[float | None, ...]

MEASURES = ("r1", "r5", "r10", "mr", "mrr")
"""Of each direction, in % except for the median rank."""


@dataclass(frozen=True)
class PaperTable:
    """One result table, and what it takes to repeat it.

    Attributes:
        name: on the command line.
        number: in the paper; None for a table of ours.
        title: in words.
        kind: which networks and measures it has.
        preset: of `Settings`; of zero-shot tables by network.
        published: cells by method: both directions of `MEASURES`, or AP@50.
        sizes: training, validation and test pairs of the paper; of zero-shot tables classes.
        needs: the data, in words.
        visited: pairs, or pictures with one caption each, that an epoch of the paper visits.
    """

    name: str
    number: int | None
    title: str
    kind: Kind
    preset: str | Mapping[str, str]
    published: Mapping[str, Cells]
    sizes: tuple[int, int, int]
    needs: str
    visited: int

    @property
    def names(self) -> tuple[str, str]:
        """The two modalities."""
        return ("sheet", "audio") if self.kind == "sheet-audio" else ("image", "text")

    @property
    def rows(self) -> dict[str, str]:
        """Methods that are trained here, by name, with their titles; linear CCA and ours too."""
        if self.kind == "zero-shot":
            networks = {"cnn": "Word CNN", "crnn": "Word CNN-RNN"}
            trained = {
                f"{short}-{method}": f"{network} + {title}"
                for short, network in networks.items()
                for method, title in {**_METHODS, **_TUNED}.items()
            }
        else:
            trained = {**_METHODS, **(_TUNED if self.kind == "sheet-audio" else {})}
        return {"linear": "linear CCA", **trained, "ours": _OURS[self.kind]}

    def is_ours(self, row: str) -> bool:
        """Whether the settings of a row are ours; else they are the paper's."""
        return row in ("linear", "ours") or row.endswith("tuned")

    def closed_form(self, row: str) -> bool:
        """Whether a row is computed at once, so that seeds change nothing."""
        return row == "linear" or (row == "ours" and self.kind == "zero-shot")

    @property
    def published_for(self) -> dict[str, str]:
        """The published row that stands below a row of ours."""
        return {row: title for row, title in self.rows.items() if title in self.published}


_METHODS = {"dcca": "DCCA", "learned": "Learned-Lrank", "ccal": "CCAL-Lrank"}
_TUNED = {"tuned": "CCAL, our settings"}
_OURS = {
    "image-text": "ccal's default (refined)",
    "sheet-audio": "ccal's default (refined)",
    "zero-shot": "ccal's default (zero-shot)",
}

_ZERO_SHOT = {"cnn": "cub-cnn", "crnn": "cub-crnn"}
# Birds and flowers.
_TABLE_6: dict[str, Cells] = {
    "Attributes (Reed 2016)": (50.0, None),
    "Word2Vec (Reed 2016)": (33.5, 52.1),
    "Word CNN (Reed 2016)": (43.3, 56.3),
    "Word CNN-RNN (Reed 2016)": (48.7, 59.6),
    "Word CNN + CCAL-Lrank": (52.2, 62.2),
    "Word CNN-RNN + CCAL-Lrank": (49.8, 64.0),
}

TABLES = {
    table.name: table
    for table in (
        PaperTable(
            "iapr-tc12",
            2,
            "IAPR TC-12: images and descriptions",
            "image-text",
            "iapr-tc12",
            {
                "DCCA-2015": (30.2, 57.0, None, None, 42.6, 29.5, 60.0, None, None, 41.5),
                "DCCA": (31.0, 58.7, 70.4, 3.6, 43.9, 29.5, 58.2, 70.5, 4.0, 42.7),
                "Learned-Lrank": (22.3, 50.7, 63.8, 5.2, 35.7, 21.6, 50.1, 63.3, 5.5, 35.1),
                "CCAL-Lrank": (31.6, 61.0, 72.2, 3.0, 45.0, 29.6, 60.0, 72.2, 3.6, 43.5),
            },
            (17_000, 1000, 2000),
            "annotations and images, 20,000 (1.7 GB), or features of the images",
            17_000,
        ),
        PaperTable(
            "flickr30k",
            3,
            "Flickr30k: images and five captions as one text",
            "image-text",
            "flickr30k",
            {
                "DCCA-2015": (27.9, 56.9, 68.2, 4, None, 26.8, 52.9, 66.9, 4, None),
                "DCCA": (31.6, 59.2, 69.3, 3.3, 44.2, 30.3, 58.3, 69.2, 3.8, 43.1),
                "Learned-Lrank": (23.7, 50.5, 63.0, 5.3, 36.3, 23.6, 51.0, 62.5, 5.2, 36.5),
                "CCAL-Lrank": (32.0, 59.2, 70.4, 3.2, 44.8, 29.9, 58.8, 70.2, 3.7, 43.3),
            },
            (28_000, 1000, 1000),
            "captions and images, 31,783 (4.4 GB), or features of the images",
            28_000,
        ),
        PaperTable(
            "nottingham",
            4,
            "Nottingham: sheet music and sound",
            "sheet-audio",
            "nottingham",
            {
                "DCCA": (42.0, 88.2, 93.3, 2, 62.2, 44.6, 87.9, 93.2, 2, 63.5),
                "Learned-Lrank": (40.7, 89.6, 95.6, 2, 61.7, 41.4, 88.9, 95.4, 2, 61.9),
                "CCAL-Lrank": (44.1, 93.3, 97.7, 2, 65.3, 44.5, 91.6, 96.7, 2, 64.9),
            },
            (270_705, 18_046, 16_042),
            "1,034 tunes as MIDI files (or ABC), 5 MB; rendered here to 0.7 GB",
            270_705,
        ),
        PaperTable(
            "nottingham-10pct",
            5,
            "Nottingham, a tenth of the training data: the first 47 tunes",
            "sheet-audio",
            "nottingham-10pct",
            {
                "DCCA": (20.0, 53.6, 65.4, 5, 35.3, 22.7, 54.7, 65.8, 4, 37.3),
                "Learned-Lrank": (11.3, 35.2, 47.6, 12, 23.0, 12.6, 35.2, 47.2, 12, 23.7),
                "CCAL-Lrank": (22.2, 59.2, 70.7, 4, 38.8, 25.0, 59.3, 70.9, 4, 40.4),
            },
            (27_000, 18_046, 16_042),
            "the same",
            27_000,
        ),
        PaperTable(
            "cub",
            6,
            "CUB birds, zero-shot: images of unseen classes",
            "zero-shot",
            _ZERO_SHOT,
            {name: cells[:1] for name, cells in _TABLE_6.items()},
            (100, 50, 50),
            "captions and images (or features) of 11,788 birds (1.1 GB)",
            5_900,
        ),
        PaperTable(
            "flowers",
            6,
            "Oxford flowers, zero-shot: images of unseen classes",
            "zero-shot",
            _ZERO_SHOT,
            {name: cells[1:] for name, cells in _TABLE_6.items()},
            (82, 20, 20),
            "captions and images (or features) of 8,189 flowers (330 MB)",
            6_600,
        ),
        PaperTable(
            "flickr8k",
            None,
            "Flickr8k: images and five captions as one text (ours; not in the paper)",
            "image-text",
            "paper",
            {},
            (6000, 1000, 1000),
            "captions and images, 8,000 (1.1 GB), or features of the images",
            6_000,
        ),
    )
}
"""Every result table of the paper, and Flickr8k as ours."""


def table_of(name: str) -> PaperTable:
    """The table of this name."""
    check("table", name, Options(*TABLES))
    return TABLES[name]


VARIANTS = ("paper", "released")
"""Losses as the paper prints them, or as its released code computes them."""

# `valid_pairs`: of the validation pairs so many, evenly spaced, decide.
BUDGETS: dict[str, dict[Kind, dict[str, Any]]] = {
    "paper": {"image-text": {}, "sheet-audio": {}, "zero-shot": {}},
    "medium": {
        "image-text": {"max_epochs": 200, "patience": 20, "refine_patience": 5, "refinements": 2},
        "sheet-audio": {
            "stride": 2,
            "batch_size": 250,
            "max_epochs": 30,
            "epoch_pairs": 30_000,
            "refit_pairs": 10_000,
            "valid_pairs": 4000,
            "patience": 8,
            "refine_patience": 3,
            "refinements": 1,
        },
        "zero-shot": {
            "max_epochs": 60,
            "refit_pairs": 20_000,
            "patience": 12,
            "refine_patience": 5,
            "refinements": 2,
        },
    },
    "small": {
        "image-text": {"max_epochs": 60, "patience": 10, "refine_patience": 5, "refinements": 1},
        "sheet-audio": {
            "stride": 2,
            "batch_size": 250,
            "max_epochs": 8,
            "epoch_pairs": 9000,
            "refit_pairs": 5000,
            "valid_pairs": 2000,
            "patience": 8,
            "refinements": 0,
        },
        "zero-shot": {
            "max_epochs": 30,
            "refit_pairs": 6000,
            "patience": 6,
            "refine_patience": 3,
            "refinements": 1,
        },
    },
}
"""What two cores can do: changes to the paper's settings. "paper" changes nothing."""

GRID = {"margin": (0.2, 0.5, 0.7, 1.0), "learning_rate": (5e-4, 1e-3, 2e-3)}
"""The values that `--grid` tries for every method; DCCA has no margin."""


# Of one core, from the runs of benchmarks/reproduce, validation and test included: of sheet music
# and sound with a stride of 2, of zero-shot the mean of both networks.
_PASSES_PER_SECOND: dict[Kind, float] = {
    "image-text": 10_000,
    "sheet-audio": 570,
    "zero-shot": 1400,
}


@dataclass(frozen=True)
class Plan:
    """How the methods of a table are trained, beside the method's own settings.

    Attributes:
        budget: a name in `BUDGETS`.
        variant: a name in `VARIANTS`.
        changes: settings of all trained methods, over those of the paper and the budget.
        pairs: the training set of Table 5 by its number of pairs; None for the first 47 tunes.
    """

    budget: str = "paper"
    variant: str = "paper"
    changes: Mapping[str, Any] = field(default_factory=dict)
    pairs: int | None = None

    def __post_init__(self) -> None:
        check("budget", self.budget, Options(*BUDGETS))
        check("variant", self.variant, Options(*VARIANTS))
        if taken := {"method", "seed"} & set(self.changes):
            raise InputError(f"{taken.pop()} is set by the rows and repeats of a table.")

    def valid_pairs(self, table: PaperTable) -> int | None:
        """How many validation pairs decide; None for all."""
        limit: int | None = BUDGETS[self.budget][table.kind].get("valid_pairs")
        return limit

    def settings(self, table: PaperTable, row: str, seed: int, **more: Any) -> Settings:
        """The settings of one row; `more` are those that the grid has chosen."""
        changes = {n: v for n, v in BUDGETS[self.budget][table.kind].items() if n != "valid_pairs"}
        return _settings(table, row, seed, self.variant, {**changes, **self.changes, **more})

    def minutes(self, table: PaperTable) -> float:
        """A guess for one network on one core: as if its 20th epoch were the best."""
        settings = self.settings(table, next(r for r in table.rows if not table.is_ours(r)), 0)
        epochs = 20 + settings.patience + settings.refinements * settings.refine_patience
        visited = min(table.visited, settings.epoch_pairs or table.visited)
        captions = 10 if table.kind == "zero-shot" else 1
        fitted = settings.refit_pairs or captions * table.visited
        # A training pair goes forth and back, which counts as three passes.
        passes = min(epochs, settings.max_epochs) * (3 * visited + fitted)
        seconds = passes / _PASSES_PER_SECOND[table.kind]
        if table.kind == "sheet-audio":
            seconds *= (2 / settings.stride) ** 2
        return seconds / 60

    def differences(self, table: PaperTable, row: str, **more: Any) -> list[str]:
        """What differs from the paper's settings, in words; nothing for linear CCA and ours."""
        if table.is_ours(row):
            return []
        mine = self.settings(table, row, 0, **more).as_dict()
        theirs = _settings(table, row, 0, "paper", {}).as_dict()
        return [
            f"{name} {_value(mine.get(name))} (paper: {_value(theirs.get(name))})"
            for name in {**theirs, **mine}
            if mine.get(name) != theirs.get(name)
        ]


def _value(value: Any) -> str:
    return "all" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _settings(
    table: PaperTable, row: str, seed: int, variant: str, changes: Mapping[str, Any]
) -> Settings:
    if row == "linear":
        return Settings(method="linear", text="tfidf", train_on_all=False, seed=seed)
    network, _, method = row.rpartition("-")
    if table.is_ours(row):
        return _our_settings(table, row, seed, changes)
    preset = table.preset if isinstance(table.preset, str) else table.preset[network]
    released: dict[str, Any] = {}
    if variant == "released":
        # The released code trains learned projections in both directions, CCAL in one.
        released = {"reduction": "mean", **({"direction": "both"} if method == "learned" else {})}
    return Settings.preset(preset, **{**released, **changes, "method": method, "seed": seed})


_OF_TIME = (
    *("stride", "batch_size", "max_epochs", "epoch_pairs", "refit_pairs", "patience"),
    *("refine_patience", "refinements"),
)


def _our_settings(table: PaperTable, row: str, seed: int, changes: Mapping[str, Any]) -> Settings:
    """Our default for the kind of data, or for a network; of a budget it takes time alone.

    All rows of a table learn from the same pairs, so ours leaves out its final training, which
    includes the validation pairs.
    """
    if not row.endswith("tuned"):
        return Settings(text="tfidf", train_on_all=False, seed=seed)
    kept = {name: value for name, value in changes.items() if name in _OF_TIME}
    if table.kind == "sheet-audio":
        return Settings.preset("ccal", **kept, seed=seed)
    network = row.removesuffix("-tuned")
    return Settings.preset("ccal-words", text=f"word-{network}", **kept, seed=seed)
