"""Runs: what `ccal train`, `evaluate` and `compare` do, as functions.

- `train`: from a `Source` of pairs to a folder with a model, its measures and a page: a `Run`.
- `load`: the `Run` in a folder, finished or not; `load_model`: its model alone, without training.
- `evaluate`: how well a run finds counterparts, on its own pairs or on others: an `Evaluation`.
- `export_trec`: rankings and judgements for trec_eval and ranx.
- `compare`: several methods and seeds on the same pairs, with tests: a `Comparison`.

Nothing here prints: `note` is a function that is given remarks for people, and those about
doubtful data or results begin with "warning: ".
"""

from ccal.optional import lazy_names

__getattr__, __all__ = lazy_names(__name__)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
