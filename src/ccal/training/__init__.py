"""Training: from pairs to a model, by any of the methods.

- `Settings`, `METHODS`, `PRESETS`: everything a run can be told.
- `train`: build, train, choose on validation pairs; `evaluate`: both directions, on raw items.
- `train_zero_shot`, `evaluate_zero_shot`, `load_zero_shot`: classes no training pair showed.
- `fit`: the loop alone, for a model and an objective of your own.
- `distributed_from_environment`: several processes started by torchrun, as one.
"""

from ccal.training.features import PairFeatures
from ccal.training.loop import fit
from ccal.training.metrics import History
from ccal.training.objectives import CorrelationObjective, EmbeddingObjective, make_objective
from ccal.training.parallel import distributed_from_environment
from ccal.training.recipe import Trained, embed, train
from ccal.training.scoring import evaluate
from ccal.training.settings import METHODS, PRESETS, Method, Settings
from ccal.training.signals import Interrupted
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
    "evaluate",
    "evaluate_zero_shot",
    "fit",
    "load_zero_shot",
    "make_objective",
    "train",
    "train_zero_shot",
]
