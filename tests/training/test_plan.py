"""What training will do, in words and in expected seconds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ccal.data import Pairs
from ccal.training import METHODS, Settings
from ccal.training.front_ends import image_networks
from ccal.training.plan import features_in_words, method_in_words
from ccal.training.progress import STEP_OF_STAGE
from ccal.training.refined import expected_steps, train
from ccal.training.schedule import Schedule

RNG = np.random.default_rng(0)
PAIRS = Pairs({"image": RNG.normal(size=(300, 20)), "text": ["a red bird", "a blue dog"] * 150})


def test_every_method_has_words() -> None:
    for method in METHODS:
        assert method_in_words(Settings(method=method)).startswith(f"{method}: ")
    words = method_in_words(Settings())
    assert "validation pairs choose" in words
    assert words.endswith("training on all but the test pairs")
    assert "test pairs" not in method_in_words(Settings(train_on_all=False))


def test_features_are_named() -> None:
    assert features_in_words(Settings(), PAIRS) == (
        "image: 20 numbers each, as given; text: TF-IDF of words that occur 3 times or more"
    )
    assert "in their order, for word-cnn" in features_in_words(
        Settings(method="ccal", text="word-cnn"), PAIRS
    )


def test_few_image_files_are_seen_by_three_networks() -> None:
    few = [f"{number}.jpg" for number in range(5000)]
    three = ("efficientnet-lite0", "efficientnet-lite1", "efficientnet-lite2")
    assert image_networks(Settings(), few) == image_networks(Settings(), few * 2) == three
    assert image_networks(Settings(), [*few, "one more.jpg"]) == three[:1]
    assert image_networks(Settings.preset("paper"), few) == three[:1]
    assert image_networks(Settings(backbone="my-net+other"), few) == ("my-net", "other")


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        (Settings(), ["linear CCA", *(STEP_OF_STAGE[s] for s in ("linear", "residual", "all"))]),
        (Settings(method="linear"), ["linear CCA"]),
        (Settings(method="learned", train_on_all=False), ["training"]),
    ],
)
def test_steps_are_those_that_training_takes(
    settings: Settings, steps: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    expected = expected_steps(settings, PAIRS[:200], PAIRS[200:])
    assert list(expected) == steps
    assert all(seconds > 0 for seconds in expected.values())
    more = expected_steps(replace(settings, max_epochs=1), PAIRS[:200], PAIRS[200:])
    if settings.method == "learned":
        assert more["training"] < expected["training"]
    train(replace(settings, max_epochs=1), PAIRS[:200], PAIRS[200:], progress=False)
    assert capsys.readouterr().err == ""


def test_the_expected_end_moves_with_the_best_epoch() -> None:
    schedule = Schedule(
        initial_rate=0.1, max_epochs=50, patience=5, refine_patience=2, refinements=1
    )
    assert schedule.expected_epochs == 14
    for _ in range(14):
        schedule.update(schedule.epoch + 1.0)
    assert schedule.expected_epochs == 14 + 5 + 2
    schedule.update(0.0)
    assert schedule.expected_epochs == 15 + 4 + 2
    for _ in range(20):
        schedule.update(schedule.epoch + 1.0)
    assert schedule.expected_epochs == 42
    for _ in range(12):
        schedule.update(schedule.epoch + 1.0)
    assert schedule.expected_epochs == 50
