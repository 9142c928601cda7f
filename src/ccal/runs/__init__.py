"""Runs: what `ccal train`, `evaluate` and `compare` do, as functions.

- `train`: from a `Source` of pairs to a folder with a model, its measures and a page: a `Run`.
- `load`: the `Run` in a folder, finished or not; `load_model`: its model alone, without training.
- `evaluate`: how well a run finds counterparts, on its own pairs or on others: an `Evaluation`.
- `export_trec`: rankings and judgements for trec_eval and ranx.
- `compare`: several methods and seeds on the same pairs, with tests: a `Comparison`.

Nothing here prints: `note` is a function that is given remarks for people, and those about
doubtful data or results begin with "warning: ".
"""

from typing import TYPE_CHECKING

from ccal.optional import lazy_names

if TYPE_CHECKING:
    from ccal.runs.comparison import compare
    from ccal.runs.evaluation import Evaluation, evaluate, export_trec
    from ccal.runs.folder import Run, load, load_model
    from ccal.runs.table import Comparison
    from ccal.runs.training import train

__all__ = [
    "Comparison",
    "Evaluation",
    "Run",
    "compare",
    "evaluate",
    "export_trec",
    "load",
    "load_model",
    "train",
]

# Imported when first used: a search opens a run and must not wait for training.
__getattr__ = lazy_names(
    __name__,
    {
        "comparison": ("compare",),
        "evaluation": ("Evaluation", "evaluate", "export_trec"),
        "folder": ("Run", "load", "load_model"),
        "table": ("Comparison",),
        "training": ("train",),
    },
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
