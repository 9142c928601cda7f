"""All settings of a training run, checked when they are made, and plain data for TOML."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, Self, get_args, get_origin, get_type_hints

from ccal.bounds import Number, Options, Rule, Text, Whole, check_all, check_names
from ccal.errors import InputError

Method = Literal["refined", "ccal", "dcca", "learned", "linear", "zero-shot"]
"""What a setting `method` may be; see `Settings`."""
METHODS: tuple[Method, ...] = get_args(Method)
"""All methods, the default first."""
BY_TOWER = (
    *("dropout_x", "dropout_y", "learning_rate", "temperature", "averaging", "batch_size"),
    *("max_epochs", "patience"),
)
"""Settings that the towers of `tower = "auto"` may have other defaults for."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to train. The defaults are ours; `Settings.preset("paper")` is the paper's image-text.

    Args:
        method: "refined" (towers that start as linear CCA and are fine-tuned), "ccal" (CCA layer),
            "dcca" (trace norm, CCA fitted afterwards), "learned" (trained matrices for CCA's),
            "linear" (linear CCA, nothing trained) or "zero-shot" (linear CCA for classes that
            training does not see, chosen by AP@50 of the validation classes; it needs labels, and
            validation pairs of other classes).
        dim: features of the common space; None chooses for the method.
        hidden_x: widths of the hidden layers (dense, batch norm, ELU) of tower x, none for a linear
            tower. For ccal, dcca and learned.
        hidden_y: the same for tower y.
        stride: of the first convolution of VGG towers, which ccal, dcca and learned have for
            pictures and spectrograms given as arrays (n, height, width) or (n, 1, height, width);
            the paper has 1, and 2 takes a quarter of the time. Other methods flatten such arrays.
        start: of these towers: "random" as in the paper, or "linear": linear CCA of the pooled
            pixels, to which a VGG network adds what it learns.
        loss: "ranking", "infonce" or "sigmoid"; DCCA always has the trace norm.
        margin: of the ranking loss.
        direction: of the ranking loss: "both", or "x->y", or "y->x".
        reduction: of the ranking loss over its hinges and of the trace norm over its correlations:
            "sum" as the paper prints them, or "mean" as in its released code. Adam takes the same
            steps with either, unless weight decay adds to the gradient.
        negatives: of the ranking loss: "all", or the "hardest" of each query (VSE++).
        temperature: of InfoNCE and of the sigmoid loss at the start.
        trace_norm: weight of the trace norm objective beside the loss of method ccal; 0 is none, as
            in the paper.
        ridge: on the covariances of CCA layers and of the trace norm.
        relative_ridge: the ridge counts in units of the view's mean variance.
        power: coordinates of CCA layers are weighted by correlation^power; learned projections that
            start at linear CCA start with these weights.
        momentum: weight of a batch in a CCA layer's running statistics.
        root_x: "refined", "linear" and "zero-shot" take square roots of the features of x: "yes",
            "no", or "auto": "no" for linear; "yes" for zero-shot; for refined, if they are never
            negative and it does not harm.
        root_y: the same for y, but never for zero-shot.
        tower: of "refined": "linear", "residual" (a hidden layer beside the linear map), "auto",
            which trains both and keeps the one that finds the validation pairs better, or "none",
            which trains nothing: the linear CCA that the towers would start from, in closed form.
            The towers of "auto" have defaults of their own for settings in `BY_TOWER` that were not
            set: the learning rate is 1e-3, and patience is shorter where epochs have many steps.
        residual: hidden units of that layer.
        dropout_x: share of the inputs of tower x that is set to zero in training.
        dropout_y: the same for tower y.
        optimiser: "adam" (L2 penalty, as in the paper) or "adamw" (decoupled decay).
        learning_rate: of the first epochs.
        weight_decay: as torch's optimisers count it; 2e-4 is the paper's penalty 1e-4 * sum(w^2).
        decay: what decays: "weights" (matrices and kernels), or "all" trained parameters of the
            model, biases and batch norm included.
        averaging: decay of the running mean of the weights that is validated and kept; 0 is none.
        batch_size: pairs a step, over all ranks together.
        max_epochs: training ends after so many epochs, or earlier for lack of progress.
        patience: epochs without a better validation MRR before the learning rate is divided.
        refine_patience: the same after the first division.
        refinements: how often the best weights come back with a tenth of the learning rate.
        epoch_pairs: training pairs that an epoch visits, drawn anew each time; None for all.
        refit_pairs: training pairs that CCA's projections are fitted to after an epoch, evenly
            spread over all; None for all.
        one_per_group: an epoch takes one pair of each group, drawn anew each time, such as one of
            the captions of a picture; CCA's projections are always those of all pairs.
        mask_labels: pairs of one label, or without labels of one group, are not pushed apart.
        select: direction of the validation MRR that chooses the best epoch, or "both" for the mean;
            or "classes", which needs labels: AP@50 with one query a class, the mean of its y.
        train_on_all: after choosing on the validation pairs, train once more with them included.
        hub_correction: candidates near too many training queries get a penalty, with the weight
            that finds the validation pairs best: "yes", "no", or "auto", which is "yes" for
            "refined" and "zero-shot".
        text: features of texts: "tfidf", "sentences" (embeddings by `sentence_model`) or both side
            by side, "tfidf+sentences", with a weight that the validation pairs choose; or words in
            order for ccal, dcca and learned, with the paper's towers "word-cnn" and "word-crnn",
            which have hidden layers of their own (other methods then take TF-IDF). "auto" is
            "tfidf+sentences" if the extra `sentences` is installed or a `sentence_model` is given,
            else "tfidf". Zero-shot always has TF-IDF.
        sentence_model: of the sentence embeddings, as `SentenceEmbeddings` takes it.
        backbone: network for image files, as `ccal.features` knows it (extra `images`), or
            several joined by "+". "auto" joins EfficientNet-Lite0, 1 and 2 for at most 5,000
            different images, and takes Lite0 for more of them and for zero-shot.
        min_count: a word of a text modality stays if it occurs that often in the training texts.
        sublinear: TF-IDF takes 1 + ln(count) of a word instead of its count.
        lemmatise: words are reduced to their dictionary form (extra `text`).
        language: of the texts, for lemmatising.
        precision: "float32", or "bf16" for autocast in the towers.
        seed: of weights, shuffling and dropout.
        given: names of settings in `BY_TOWER` that hold for both towers of "auto" although they
            equal the default, such as ("max_epochs",). Settings with another value always hold for
            both. `preset` and `from_mapping` fill it in with the names of their arguments.
    """

    method: Method = "refined"
    dim: int | None = None
    hidden_x: tuple[int, ...] = ()
    hidden_y: tuple[int, ...] = ()
    stride: int = 1
    start: Literal["random", "linear"] = "random"
    loss: Literal["ranking", "infonce", "sigmoid"] = "infonce"
    margin: float = 0.5
    direction: Literal["both", "x->y", "y->x"] = "both"
    reduction: Literal["mean", "sum"] = "mean"
    negatives: Literal["all", "hardest"] = "all"
    temperature: float = 0.05
    trace_norm: float = 0.0
    ridge: float = 1e-3
    relative_ridge: bool = False
    power: float = 0.0
    momentum: float = 1.0
    root_x: Literal["auto", "yes", "no"] = "auto"
    root_y: Literal["auto", "yes", "no"] = "auto"
    tower: Literal["auto", "linear", "residual", "none"] = "auto"
    residual: int = 512
    dropout_x: float = 0.5
    dropout_y: float = 0.3
    optimiser: Literal["adam", "adamw"] = "adamw"
    learning_rate: float = 2e-4
    weight_decay: float = 0.05
    decay: Literal["weights", "all"] = "weights"
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
    text: Literal["auto", "tfidf", "sentences", "tfidf+sentences", "word-cnn", "word-crnn"] = "auto"
    sentence_model: str = "all-MiniLM-L6-v2"
    backbone: str = "auto"
    min_count: int = 3
    sublinear: bool = True
    lemmatise: bool = True
    language: str = "en"
    precision: Literal["float32", "bf16"] = "float32"
    seed: int = 0
    given: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "given", tuple(self.given))
        for name in ("hidden_x", "hidden_y"):
            value = getattr(self, name)
            if not isinstance(value, tuple | list) or not all(map(Whole(at_least=1).allows, value)):
                raise InputError(f"{name} must be a list of positive whole numbers, got {value!r}.")
            object.__setattr__(self, name, tuple(map(int, value)))
        if unknown := [name for name in self.given if name not in BY_TOWER]:
            raise InputError(f"given takes {', '.join(BY_TOWER)}; got {unknown[0]!r}.")
        check_all(_RULES, vars(self))
        for name in _NUMBERS:
            # TOML and checkpoints take Python's numbers only.
            if hasattr(value := getattr(self, name), "item"):
                object.__setattr__(self, name, value.item())
        if self.train_on_all and self.refinements:
            raise InputError(
                f"train_on_all repeats the chosen number of epochs at one learning rate; it needs "
                f"refinements = 0, got {self.refinements}."
            )

    @classmethod
    def preset(cls, name: str, **changes: Any) -> Self:
        """The settings of a preset for its method, changed where `changes` says so.

        >>> Settings.preset("flickr30k", method="learned").learning_rate
        0.001
        """
        if name not in PRESETS:
            raise InputError(f"preset must be one of {', '.join(PRESETS)}; got {name!r}.")
        values = {**PRESETS[name], **changes}
        of_method = _OF_METHOD.get((name, str(values.get("method"))), {})
        return cls.from_mapping({**values, **of_method, **changes})

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """Settings from plain data, as TOML has it.

        >>> Settings.from_mapping({"margn": 0.2})
        Traceback (most recent call last):
        ...
        ccal.errors.InputError: There is no setting 'margn'; did you mean 'margin'?
        """
        names = [field.name for field in fields(cls)]
        check_names(values, names, "setting")
        settings = cls(**values)
        named = (name for name in settings.to_be_chosen if name in values)
        return settings.changed(given=(*settings.given, *named))

    @property
    def trained(self) -> bool:
        """Whether the method takes steps; "linear" and "zero-shot" are computed at once.

        >>> Settings(tower="none").trained
        False
        """
        if self.method == "refined":
            return self.tower != "none"
        return self.method not in ("linear", "zero-shot")

    @property
    def starts_linear(self) -> bool:
        """Whether the method starts from linear CCA, so that every view is rows of numbers."""
        return self.method == "refined" or not self.trained

    @property
    def to_be_chosen(self) -> tuple[str, ...]:
        """Names of the settings in `BY_TOWER` that were not set, so that a tower chooses them.

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
        """A copy with some other values."""
        return replace(self, **changes)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for `from_mapping`, without those that are None or `to_be_chosen`.

        >>> "max_epochs" in Settings().as_dict(), Settings(max_epochs=20).as_dict()["max_epochs"]
        (False, 20)
        """
        plain = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}
        # `from_mapping` takes every setting it gets as given.
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
    "reduction": "sum",
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
    "text": "tfidf",
    "backbone": "efficientnet-lite0",
    "sublinear": False,
    "hub_correction": "no",
}
_ZERO_SHOT: dict[str, Any] = {
    **_PAPER,
    "dim": 64,
    "hidden_x": [1024, 1024],
    "hidden_y": [],
    "margin": 0.2,
    "decay": "all",
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
    "fast": {"tower": "none"},
    "paper": _PAPER,
    "iapr-tc12": _PAPER,
    "flickr30k": {**_PAPER, "learning_rate": 2e-3, "min_count": 5},
    "cub-cnn": {**_ZERO_SHOT, "text": "word-cnn", "learning_rate": 7e-4},
    "cub-crnn": {**_ZERO_SHOT, "text": "word-crnn", "learning_rate": 1e-2},
    "nottingham": _SHEET_AUDIO,
    "nottingham-10pct": _SHEET_AUDIO,
    "ccal": {
        **_SHEET_AUDIO,
        "start": "linear",
        "power": 4.0,
        "learning_rate": 1e-2,
        "margin": 1.0,
        "direction": "both",
        "select": "both",
    },
    "ccal-words": {
        **_ZERO_SHOT,
        "text": "word-cnn",
        "loss": "infonce",
        "temperature": 0.1,
        "trace_norm": 5.0,
        "reduction": "mean",
        "power": 1.0,
        "mask_labels": True,
        "batch_size": 3000,
        "learning_rate": 2e-3,
    },
}
"""Named settings: ours; ours in closed form, without training; those of the paper's image-text
experiments, "paper" being IAPR TC-12's; those of its zero-shot experiments with a word CNN and a
word CNN-RNN, chosen by AP@50 on unseen classes; those of sheet music and sound (the two differ in
their training tunes only). "ccal" and "ccal-words" are our best for networks with the CCA layer: on
pictures and spectrograms, and on image features with words in order, for unseen classes."""

_OF_METHOD: dict[tuple[str, str], dict[str, Any]] = {
    ("flickr30k", "learned"): {"learning_rate": 1e-3}
}
"""What a preset changes for one method."""


_NUMBERS: dict[str, Rule | tuple[Rule, ...]] = {
    # CCA of more dimensions needs matrices of more than 2 GB.
    "dim": (Whole(at_least=1, at_most=16_000), Options(None)),
    "temperature": Number(above=0),
    "momentum": Number(above=0, at_most=1),
    "learning_rate": Number(above=0),
    "batch_size": Whole(at_least=2),
    "refinements": Whole(at_least=0),
    "seed": Whole(at_least=0, below=2**63),
    **dict.fromkeys(("margin", "trace_norm", "ridge", "power", "weight_decay"), Number(at_least=0)),
    **dict.fromkeys(("dropout_x", "dropout_y", "averaging"), Number(at_least=0, below=1)),
    **dict.fromkeys(("max_epochs", "patience", "refine_patience"), Whole(at_least=1)),
    **dict.fromkeys(("residual", "min_count", "stride"), Whole(at_least=1)),
    **dict.fromkeys(("epoch_pairs", "refit_pairs"), (Whole(at_least=2), Options(None))),
}
_HINTS = get_type_hints(Settings)
_RULES: dict[str, Rule | tuple[Rule, ...]] = {
    **{name: Options(True, False) for name, hint in _HINTS.items() if hint is bool},
    **{n: Options(*get_args(h)) for n, h in _HINTS.items() if get_origin(h) is Literal},
    **dict.fromkeys(("backbone", "language", "sentence_model"), Text()),
    **_NUMBERS,
}
"""Bounds of the numbers, and the values that flags and choices may have."""
