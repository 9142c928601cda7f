"""Everything that a training run can be told, checked at the door, as plain data for TOML."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, Self, get_args, get_origin, get_type_hints

from ccal.errors import InputError

__all__ = ["BY_TOWER", "METHODS", "PRESETS", "Method", "Settings"]

Method = Literal["refined", "ccal", "dcca", "learned", "linear"]
METHODS: tuple[Method, ...] = get_args(Method)
BY_TOWER = (
    *("dropout_x", "dropout_y", "learning_rate", "temperature", "averaging", "batch_size"),
    *("max_epochs", "patience"),
)
"""Settings of which a residual tower that `tower = "auto"` tries has defaults of its own."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to train. The defaults are ours; `Settings.preset("paper")` is the paper's image-text.

    Args:
        method: "refined" (towers that start as linear CCA and are fine-tuned), "ccal" (CCA layer),
            "dcca" (trace norm, CCA fitted afterwards), "learned" (trained matrices for CCA's) or
            "linear" (linear CCA, nothing trained).
        dim: features of the common space; None chooses for the method.
        hidden_x: widths of the hidden layers (dense, batch norm, ELU) of tower x, none for a linear
            tower. For ccal, dcca and learned.
        hidden_y: the same for tower y.
        loss: "ranking", "infonce" or "sigmoid"; DCCA always has the trace norm.
        margin: of the ranking loss.
        direction: of the ranking loss: "both", or "x->y", or "y->x".
        temperature: of InfoNCE and of the sigmoid loss at the start.
        ridge: on the covariances of CCA layers and of the trace norm.
        relative_ridge: the ridge counts in units of the view's mean variance.
        power: coordinates of CCA layers are weighted by correlation^power.
        momentum: weight of a batch in a CCA layer's running statistics.
        root_x: "refined" and "linear" take square roots of the features of x: "yes", "no", or
            "auto": "no" for linear; for refined, if they are never negative and it does not harm.
        root_y: the same for y.
        tower: of "refined": "linear", "residual" (a hidden layer beside the linear map), or "auto",
            which trains both and keeps what finds the validation pairs better; the residual one
            with defaults of its own, where neither `given` nor another value says otherwise.
        residual: hidden units of that layer.
        dropout_x: share of the inputs of tower x that is set to zero in training.
        dropout_y: the same for tower y.
        optimiser: "adam" (L2 penalty, as in the paper) or "adamw" (decoupled decay).
        learning_rate: to begin with.
        weight_decay: as torch's optimisers count it; 2e-4 is the paper's penalty 1e-4 * sum(w^2).
        averaging: decay of the running mean of the weights that is validated and kept; 0 is none.
        batch_size: pairs a step, over all ranks together.
        max_epochs: the end, if patience does not come first.
        patience: epochs without a better validation MRR before the learning rate is divided.
        refine_patience: the same after the first division.
        refinements: how often the best weights come back with a tenth of the learning rate.
        epoch_pairs: an epoch visits so many of the training pairs, drawn anew each time; None for
            all of them.
        refit_pairs: CCA's projections come from so many training pairs, evenly spread over them;
            None for all of them.
        one_per_group: an epoch takes one pair of each group, drawn anew each time, such as one of
            the captions of a picture; CCA's projections are always those of all pairs.
        mask_labels: pairs of one label, or without labels of one group, are not pushed apart.
        select: direction of the validation MRR that decides, or "both" for the mean; or "classes":
            AP@50 of one query a class, the mean of the class's y, among all x. It needs labels.
        train_on_all: after choosing on the validation pairs, train once more with them included.
        hub_correction: candidates near too many training queries are set back, as far as that helps
            to find the validation pairs: "yes", "no", or "auto" for "refined" alone.
        text: what texts become for ccal, dcca and learned: "tfidf", or words in order for the
            paper's towers "word-cnn" and "word-crnn", which have hidden layers of their own.
            "refined" and "linear" always have TF-IDF.
        backbone: network for image files, as `ccal.features` knows it (needs ccal[images]).
        min_count: a word of a text modality stays if it occurs that often in the training texts.
        sublinear: TF-IDF takes 1 + ln(count) of a word instead of its count.
        lemmatise: words are reduced to their dictionary form (needs ccal[text]).
        language: of the texts, for lemmatising.
        precision: "float32", or "bf16" for autocast in the towers.
        seed: of weights, shuffling and dropout.
        given: names of settings that hold for both towers of "auto" although they have their
            default, such as ("max_epochs",); those with another value always do. `preset` and
            `from_mapping` fill it in from what they are given.
    """

    method: Method = "refined"
    dim: int | None = None
    hidden_x: tuple[int, ...] = ()
    hidden_y: tuple[int, ...] = ()
    loss: Literal["ranking", "infonce", "sigmoid"] = "infonce"
    margin: float = 0.5
    direction: Literal["both", "x->y", "y->x"] = "both"
    temperature: float = 0.05
    ridge: float = 1e-3
    relative_ridge: bool = False
    power: float = 0.0
    momentum: float = 1.0
    root_x: Literal["auto", "yes", "no"] = "auto"
    root_y: Literal["auto", "yes", "no"] = "auto"
    tower: Literal["auto", "linear", "residual"] = "auto"
    residual: int = 512
    dropout_x: float = 0.5
    dropout_y: float = 0.3
    optimiser: Literal["adam", "adamw"] = "adamw"
    learning_rate: float = 2e-4
    weight_decay: float = 0.05
    averaging: float = 0.99
    batch_size: int = 1000
    max_epochs: int = 60
    patience: int = 10
    refine_patience: int = 10
    refinements: int = 0
    epoch_pairs: int | None = None
    refit_pairs: int | None = None
    one_per_group: bool = True
    mask_labels: bool = True
    select: Literal["both", "x->y", "y->x", "classes"] = "both"
    train_on_all: bool = True
    hub_correction: Literal["auto", "yes", "no"] = "auto"
    text: Literal["tfidf", "word-cnn", "word-crnn"] = "tfidf"
    backbone: str = "efficientnet-lite0"
    min_count: int = 3
    sublinear: bool = True
    lemmatise: bool = True
    language: str = "en"
    precision: Literal["float32", "bf16"] = "float32"
    seed: int = 0
    given: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        if unknown := [name for name in self.given if name not in BY_TOWER]:
            raise InputError(f"given takes {', '.join(BY_TOWER)}; got {unknown[0]!r}.")
        for field in fields(self):
            if field.name == "given":
                continue
            _check_type(field.name, getattr(self, field.name), hints[field.name])
        _at_least(
            self,
            1,
            "residual",
            "batch_size",
            "max_epochs",
            "patience",
            "refine_patience",
            "min_count",
        )
        _at_least(self, 0, "refinements", "weight_decay", "ridge", "power", "seed", "margin")
        _within(self, 0, 1, "dropout_x", "dropout_y", "averaging")
        if self.batch_size < 2:
            raise InputError(f"batch_size must be 2 or more, got {self.batch_size}.")
        if self.dim is not None and self.dim < 1:
            raise InputError(f"dim must be 1 or more, got {self.dim}.")
        for name in ("epoch_pairs", "refit_pairs"):
            value = getattr(self, name)
            if value is not None and value < 2:
                raise InputError(f"{name} must be 2 or more, got {value}.")
        if not 0 < self.momentum <= 1:
            raise InputError(f"momentum must lie in (0, 1], got {self.momentum}.")
        if self.train_on_all and self.refinements:
            raise InputError(
                f"train_on_all repeats the chosen number of epochs at one learning rate; it needs "
                f"refinements = 0, got {self.refinements}."
            )
        for name in ("learning_rate", "temperature"):
            if not 0 < getattr(self, name) < float("inf"):
                raise InputError(f"{name} must be positive, got {getattr(self, name)}.")

    @classmethod
    def preset(cls, name: str, **changes: Any) -> Self:
        """The settings of a preset, changed where `changes` says so.

        >>> Settings.preset("paper", method="dcca").hidden_y
        (1024, 1024)
        """
        if name not in PRESETS:
            raise InputError(f"preset must be one of {', '.join(PRESETS)}; got {name!r}.")
        return cls.from_mapping({**PRESETS[name], **changes})

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """Settings from plain data, as TOML has it; lists become tuples.

        >>> Settings.from_mapping({"margn": 0.2})
        Traceback (most recent call last):
        ...
        ccal.errors.InputError: There is no setting 'margn'; did you mean 'margin'?
        """
        names = [field.name for field in fields(cls)]
        for name in values:
            if name not in names:
                close = difflib.get_close_matches(name, names, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(names)}."
                raise InputError(f"There is no setting {name!r}; {hint}")
        plain: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in values.items()
        }
        settings = cls(**plain)
        named = (name for name in settings.to_be_chosen if name in plain)
        return settings.changed(given=(*settings.given, *named))

    @property
    def to_be_chosen(self) -> tuple[str, ...]:
        """Names of the settings that a residual tower may have other values of.

        >>> Settings(max_epochs=20, given=("patience",)).to_be_chosen[-1]
        'batch_size'
        """
        if self.method != "refined" or self.tower != "auto":
            return ()
        return tuple(
            name
            for name in BY_TOWER
            if name not in self.given and getattr(self, name) == getattr(type(self), name)
        )

    def changed(self, **changes: Any) -> Self:
        """A copy with other values here and there."""
        return replace(self, **changes)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, without those that are None or to be chosen; `from_mapping` reads them.

        >>> "max_epochs" in Settings().as_dict(), Settings(max_epochs=20).as_dict()["max_epochs"]
        (False, 20)
        """
        plain = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}
        # What is there was given, so nothing need say so.
        left_out = {*self.to_be_chosen, "given"}
        return {k: v for k, v in plain.items() if v is not None and k not in left_out}


_PAPER: dict[str, Any] = {
    "method": "ccal",
    "dim": 128,
    "hidden_x": [],
    "hidden_y": [1024, 1024],
    "loss": "ranking",
    "margin": 0.5,
    "direction": "x->y",
    "optimiser": "adam",
    "learning_rate": 1e-3,
    "weight_decay": 2e-4,
    "dropout_x": 0.0,
    "dropout_y": 0.0,
    "averaging": 0.0,
    "max_epochs": 1000,
    "patience": 50,
    "refine_patience": 10,
    "refinements": 3,
    "mask_labels": False,
    "select": "x->y",
    "train_on_all": False,
    "sublinear": False,
    "hub_correction": "no",
}
_ZERO_SHOT: dict[str, Any] = {
    **_PAPER,
    "dim": 64,
    "hidden_x": [1024, 1024],
    "hidden_y": [],
    "margin": 0.2,
    "select": "classes",
    "lemmatise": False,
    "min_count": 1,
}
_SHEET_AUDIO: dict[str, Any] = {
    **_PAPER,
    "dim": 32,
    "hidden_y": [],
    "margin": 0.7,
    "weight_decay": 0.0,
}
PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": _PAPER,
    "iapr-tc12": _PAPER,
    "flickr30k": {**_PAPER, "learning_rate": 2e-3, "min_count": 5},
    "cub-cnn": {**_ZERO_SHOT, "text": "word-cnn", "learning_rate": 7e-4},
    "cub-crnn": {**_ZERO_SHOT, "text": "word-crnn", "learning_rate": 1e-2},
    "nottingham": _SHEET_AUDIO,
    "nottingham-10pct": _SHEET_AUDIO,
}
"""Named settings: ours; those of the paper's image-text experiments, "paper" being IAPR TC-12's
(with learned projections, Flickr30k had a learning rate of 1e-3); those of its zero-shot
experiments with a word CNN and a word CNN-RNN, chosen by AP@50 on unseen classes; those of sheet
music and sound, for `ccal reproduce` (the two differ in their training tunes only)."""


def _check_type(name: str, value: object, hint: Any) -> None:
    """Refuse a value that is not of the annotated type; whole numbers pass for floats."""
    origin, options = get_origin(hint), get_args(hint)
    if origin is Literal:
        if value not in options:
            raise InputError(
                f"{name} must be one of {', '.join(map(repr, options))}; got {value!r}."
            )
        return
    if origin is tuple:
        if not isinstance(value, tuple) or not all(type(v) is int and v > 0 for v in value):
            raise InputError(f"{name} must be a list of positive whole numbers, got {value!r}.")
        return
    kinds = options or (hint,)
    given = type(value)
    if given in kinds or (given is int and float in kinds):
        return
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    expected = " or ".join(words[kind] for kind in kinds if kind in words)
    raise InputError(f"{name} must be {expected}, got {value!r}.")


def _at_least(settings: Settings, low: float, *names: str) -> None:
    for name in names:
        value = getattr(settings, name)
        if not low <= value < float("inf"):
            raise InputError(f"{name} must be {low} or more, got {value}.")


def _within(settings: Settings, low: float, high: float, *names: str) -> None:
    for name in names:
        value = getattr(settings, name)
        if not low <= value < high:
            raise InputError(f"{name} must be at least {low} and below {high}, got {value}.")
