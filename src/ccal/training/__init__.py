"""Training: from pairs to a model, by any of the methods.

- `Settings`, `METHODS`, `PRESETS`: all settings of a run, checked.
- `train`: build, train, choose on validation pairs; `evaluate`: both directions, on raw items.
- `train_zero_shot`, `evaluate_zero_shot`, `load_zero_shot`: classes no training pair showed.
- `fit`: the loop alone, for a model and an objective of your own.
- `distributed_from_environment`: several processes started by torchrun, as one.
"""

from ccal.optional import lazy_names

__getattr__, __all__ = lazy_names(__name__)
