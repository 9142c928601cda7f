"""What training will do, before it does it: in words, and in seconds that each step may take."""

from __future__ import annotations

import math
import time
from itertools import pairwise

import torch

from ccal import distributed
from ccal.data import Pairs
from ccal.features.union import unions
from ccal.training.batches import training_groups
from ccal.training.front_ends import (
    WEIGHING_PAIRS,
    image_networks,
    make_front_ends,
    sentences_available,
    text_features,
)
from ccal.training.progress import STEP_OF_STAGE
from ccal.training.schedule import Schedule
from ccal.training.settings import Settings

_METHODS = {
    "linear": "linear CCA, in closed form",
    "zero-shot": "linear CCA for classes that training does not see, in closed form; the "
    "validation classes choose",
    "ccal": "two networks with a CCA layer, trained to rank counterparts first",
    "dcca": "deep CCA: two networks, trained for a high correlation",
    "learned": "two networks with trained projections in place of CCA",
}
# Of one thread.
_IMAGES_PER_SECOND = 25.0
_CHARACTERS_PER_SECOND = 10_000.0  # of sentences
_OVERHEAD = 0.02  # seconds an epoch


def method_in_words(settings: Settings) -> str:
    """What the method does with the pairs.

    >>> method_in_words(Settings(method="linear", train_on_all=False))
    'linear: linear CCA, in closed form'
    """
    words = _METHODS.get(settings.method)
    if words is None:
        towers = {
            "auto": "linear towers and towers with a hidden layer start from it, and the "
            "validation pairs choose",
            "linear": "linear towers are fine-tuned from it",
            "residual": "towers with a hidden layer are trained from it",
        }
        if settings.trained:
            words = f"linear CCA first; then {towers[settings.tower]}"
        else:
            words = "linear CCA, in closed form; the validation pairs choose a hub correction"
    last = "; at last, training on all but the test pairs" if settings.train_on_all else ""
    return f"{settings.method}: {words}{last}"


def features_in_words(settings: Settings, pairs: Pairs) -> str:
    """The numbers that stand for the items of each modality, if these are the training pairs.

    >>> import numpy as np
    >>> pairs = Pairs({"photo": np.ones((2, 9)), "caption": ["a", "b"]})
    >>> features_in_words(Settings(text="tfidf"), pairs)
    'photo: 9 numbers each, as given; caption: TF-IDF of words that occur 3 times or more'
    """
    words = []
    for name in pairs.names:
        column = pairs.column(name)
        if column.files:
            networks = image_networks(settings, column[:])
            known = "1,280 " if networks[0].startswith("efficientnet-lite") else ""
            by = f"the network {networks[0]}"
            if len(networks) > 1:
                by = f"each of the networks {', '.join(networks[:-1])} and {networks[-1]}"
            what = f"{known}features of each image by {by}"
        elif not column.is_text:
            what = f"{' x '.join(f'{n:,}' for n in column.shape[1:])} numbers each, as given"
        elif text_features(settings).startswith("word"):
            what = f"words in their order, for {settings.text}"
        else:
            kinds = {
                "tfidf": f"TF-IDF of words that occur {settings.min_count} times or more",
                "sentences": f"sentence embeddings by {settings.sentence_model}",
            }
            what = " and ".join(kinds[kind] for kind in text_features(settings).split("+"))
        words.append(f"{name}: {what}")
    return "; ".join(words)


def lacks_sentences(settings: Settings, pairs: Pairs) -> bool:
    """Whether the extra `sentences` would give the texts of these pairs more features."""
    if settings.text != "auto" or settings.method == "zero-shot" or sentences_available(settings):
        return False
    columns = map(pairs.column, pairs.names)
    return any(column.is_text and not column.files for column in columns)


def machine_in_words() -> str:
    """Where training runs."""
    threads, ranks = torch.get_num_threads(), distributed.world_size()
    words = f"CPU, {threads} thread{'' if threads == 1 else 's'}"
    return words if ranks == 1 else f"{ranks} processes, each on the {words}"


def expected_seconds(
    settings: Settings, stages: list[tuple[str, Settings]], train: Pairs, valid: Pairs
) -> dict[str, float]:
    """A guess of the seconds of each step, by its name and in their order.

    `stages` are those of training with their settings. The guess comes from the sizes, and from the
    speed of this machine for a product of matrices.
    """
    speed = operations_per_second()
    seconds: dict[str, float] = {}
    for part, pairs in (("training", train), ("validation", valid)):
        for name in pairs.names:
            if took := network_seconds(settings, train, pairs, name):
                seconds[f"{name} features of {part} pairs"] = took
    n, widths = len(train), [_width(settings, train, name) for name in train.names]
    if unions(make_front_ends(settings, train)):
        size = min(WEIGHING_PAIRS, n)
        seconds["weights of features"] = 4 * (20 * size**3 + 2 * size * sum(widths) ** 2) / speed
    if settings.starts_linear:
        n = _group_count(train) if settings.method == "zero-shot" else n
        mean = sum(widths) / 2
        seconds["linear CCA"] = (80 * mean**3 + 6 * n * sum(widths) ** 2) / speed
    longest = 0.0
    for stage, own in stages:
        took = _epoch(own, widths, train, valid, speed) * Schedule.of(own).expected_epochs
        seconds[STEP_OF_STAGE[stage]] = took
        longest = max(longest, took)
    if settings.train_on_all and longest:
        seconds[STEP_OF_STAGE["all"]] = longest * (len(train) + len(valid)) / len(train) / 2
    return seconds


def network_seconds(settings: Settings, train: Pairs, pairs: Pairs, name: str) -> float:
    """A guess of the seconds that the features of a modality take; 0 if no network makes them.

    `train` are the pairs that the network was chosen for.
    """
    column = pairs.column(name)
    if column.files:
        passes = len(set(column[:])) * len(image_networks(settings, train.column(name)[:]))
        return passes / (_IMAGES_PER_SECOND * torch.get_num_threads())
    if column.is_text and "sentences" in text_features(settings):
        characters = sum(map(len, set(column[:])))
        return characters / (_CHARACTERS_PER_SECOND * torch.get_num_threads())
    return 0.0


def _epoch(
    settings: Settings, widths: list[int], train: Pairs, valid: Pairs, speed: float
) -> float:
    """Seconds of an epoch: steps forth and back, projections fitted to all pairs, validation."""
    n = len(train)
    visited = _group_count(train) if settings.one_per_group else n
    visited = min(visited, settings.epoch_pairs or visited)
    dim = settings.dim or 256
    weights = 0.0
    views = zip(train.names, widths, (settings.hidden_x, settings.hidden_y), strict=True)
    for name, width, hidden in views:
        if len(train.column(name).shape) > 2 and not settings.starts_linear:
            weights += _vgg_products(width / settings.stride**2)
        elif settings.method == "refined":
            beside = settings.residual if settings.tower == "residual" else 0
            weights += width * dim + beside * (width + dim)
        else:
            weights += sum(a * b for a, b in pairwise([width, *hidden, dim]))
    batch = min(settings.batch_size, visited)
    # Inputs need no gradient, so the first and largest layers cost two products instead of three.
    steps = visited * (4 * weights + 6 * batch * dim)
    after = 2 * (n + len(valid)) * weights + 2 * len(valid) ** 2 * dim
    return (steps + after) / speed + _OVERHEAD


def _vgg_products(pixels: float) -> float:
    """Products of numbers that a VGG tower takes for a picture, after its first stride."""
    products = 0.0
    for before, after in pairwise((1, 16, 32, 64, 64)):
        products += 9 * (before + after) * after * pixels
        pixels /= 4
    return products


def _group_count(pairs: Pairs) -> int:
    """Number of groups, such as photos; of pairs, if there are no groups."""
    groups = training_groups(pairs.group, [pairs.items(name) for name in pairs.names])
    return len(pairs) if groups is None else int(groups.max()) + 1


def _width(settings: Settings, pairs: Pairs, name: str) -> int:
    column = pairs.column(name)
    if column.files:
        return 1280 * len(image_networks(settings, column[:]))
    if not column.is_text:
        return math.prod(column.shape[1:])
    # The vocabulary grows with the root of the number of words (Heaps' law).
    some = column[:: max(1, len(pairs) // 100)]
    words = sum(len(text.split()) for text in some) / max(1, len(some)) * len(pairs)
    kinds = {"tfidf": int(4.5 * words**0.5) + 1, "sentences": 384}
    return sum(kinds.get(kind, kinds["tfidf"]) for kind in text_features(settings).split("+"))


def operations_per_second(threads: int | None = None) -> float:
    """Half of what a product of matrices reaches here: training also moves memory.

    The best of eight counts, since other programs may be running. `threads` are torch's by default.
    """
    own, matrix = torch.get_num_threads(), torch.ones(512, 512)
    seconds = []
    try:
        torch.set_num_threads(threads or own)
        for _ in range(8):
            begun = time.perf_counter()
            matrix @ matrix
            seconds.append(time.perf_counter() - begun)
    finally:
        torch.set_num_threads(own)
    return 512**3 / max(min(seconds), 1e-6)
