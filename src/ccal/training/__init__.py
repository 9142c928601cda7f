"""Training: from pairs to a model, by any of the methods.

- `Settings`, `METHODS`, `PRESETS`: all settings of a run, checked.
- `train`: build, train, choose on validation pairs; `evaluate`: both directions, on raw items.
- `train_zero_shot`, `evaluate_zero_shot`, `load_zero_shot`: classes no training pair showed.
- `fit`: the loop alone, for a model and an objective of your own.
- `distributed_from_environment`: several processes started by torchrun, as one.
"""

from typing import TYPE_CHECKING

from ccal.optional import lazy_names

if TYPE_CHECKING:
    from ccal.training.batches import PairFeatures
    from ccal.training.checkpoint import Interrupted
    from ccal.training.loop import fit
    from ccal.training.methods import CorrelationObjective, EmbeddingObjective, make_objective
    from ccal.training.parallel import distributed_from_environment
    from ccal.training.progress import History
    from ccal.training.refined import Trained, train
    from ccal.training.scoring import embed, embed_pairs, evaluate
    from ccal.training.settings import METHODS, PRESETS, Method, Settings
    from ccal.training.zero_shot import (
        ZeroShot,
        ZeroShotOptions,
        evaluate_zero_shot,
        load_zero_shot,
        train_zero_shot,
    )

__all__ = [
    "METHODS",
    "PRESETS",
    "CorrelationObjective",
    "EmbeddingObjective",
    "History",
    "Interrupted",
    "Method",
    "PairFeatures",
    "Settings",
    "Trained",
    "ZeroShot",
    "ZeroShotOptions",
    "distributed_from_environment",
    "embed",
    "embed_pairs",
    "evaluate",
    "evaluate_zero_shot",
    "fit",
    "load_zero_shot",
    "make_objective",
    "train",
    "train_zero_shot",
]

__getattr__ = lazy_names(
    __name__,
    {
        "batches": ("PairFeatures",),
        "checkpoint": ("Interrupted",),
        "loop": ("fit",),
        "methods": ("CorrelationObjective", "EmbeddingObjective", "make_objective"),
        "parallel": ("distributed_from_environment",),
        "progress": ("History",),
        "refined": ("Trained", "train"),
        "scoring": ("embed", "embed_pairs", "evaluate"),
        "settings": ("METHODS", "PRESETS", "Method", "Settings"),
        "zero_shot": (
            "ZeroShot",
            "ZeroShotOptions",
            "evaluate_zero_shot",
            "load_zero_shot",
            "train_zero_shot",
        ),
    },
)
