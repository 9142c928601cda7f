"""Classes that no training pair showed: linear CCA twice, and how well such classes are found.

options  `ZeroShotOptions`: what may be chosen on validation classes
fitting  `train_zero_shot`: pairs of seen classes to a model
model    `ZeroShot`: the model and the space in which candidates are neighbours; `load_zero_shot`
scoring  `evaluate_zero_shot`: any model, on pairs with labels
"""

from ccal.training.zero_shot.fitting import train_zero_shot
from ccal.training.zero_shot.model import ZeroShot, load_zero_shot
from ccal.training.zero_shot.options import ZeroShotOptions
from ccal.training.zero_shot.scoring import evaluate_zero_shot

__all__ = [
    "ZeroShot",
    "ZeroShotOptions",
    "evaluate_zero_shot",
    "load_zero_shot",
    "train_zero_shot",
]
