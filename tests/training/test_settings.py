from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ccal.errors import InputError
from ccal.training import METHODS, PRESETS, Settings
from ccal.training.settings import BY_TOWER


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("method", METHODS)
def test_plain_data_round_trip(preset: str, method: str) -> None:
    settings = Settings.preset(preset, method=method, seed=3)
    assert Settings.from_mapping(settings.as_dict()) == settings
    assert settings.changed(seed=3) == settings


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"margn": 1.0}, "margn.*did you mean 'margin'"),
        ({"method": "magic"}, "method must be one of.*'refined'.*'magic'"),
        ({"batch_size": "many"}, "batch_size must be a whole number .*, got batch_size='many'"),
        ({"batch_size": 1}, "batch_size must be a whole number of at least 2, got batch_size=1"),
        ({"batch_size": True}, "batch_size must be a whole number"),
        ({"learning_rate": 0.0}, "learning_rate must be a finite number greater than 0"),
        ({"learning_rate": float("nan")}, "learning_rate must be a finite number"),
        ({"hidden_x": [10, -1]}, "hidden_x must be a list of positive whole numbers"),
        ({"hidden_x": 10}, "hidden_x must be a list"),
        ({"language": None}, "language must be text, got language=None"),
        ({"hidden_y": (3.5,)}, "hidden_y must be a list"),
        ({"dropout_x": 1.0}, "dropout_x must be a finite number of at least 0 and below 1"),
        ({"momentum": 0.0}, "momentum must be a finite number greater than 0 and of at most 1"),
        ({"dim": 0}, "dim must be a whole number of at least 1 and of at most 16000 or None"),
        ({"train_on_all": 1}, "train_on_all must be one of True, False"),
        ({"given": ["epochs"]}, "given takes dropout_x, .*; got 'epochs'"),
        ({"refinements": 2}, "refinements = 0, got 2"),
        ({"weight_decay": -1.0}, "weight_decay must be a finite number of at least 0"),
    ],
)
def test_wrong_settings_are_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Settings.from_mapping(values)


def test_unknown_preset() -> None:
    with pytest.raises(InputError, match=r"default, fast, .*; got 'none'"):
        Settings.preset("none")


def test_whole_numbers_pass_for_floats() -> None:
    assert Settings(margin=1).margin == 1


def test_numpy_numbers_become_plain_ones() -> None:
    settings = Settings(seed=np.int64(3), hidden_x=(np.int32(8),), margin=np.float32(0.5))  # type: ignore[arg-type]
    assert [type(v) for v in (settings.seed, *settings.hidden_x, settings.margin)] == [
        int,
        int,
        float,
    ]


def test_lists_pass_for_tuples() -> None:
    settings = Settings(hidden_x=[128], given=["patience"])  # type: ignore[arg-type]
    assert settings == Settings(hidden_x=(128,), given=("patience",))
    assert settings.as_dict()["hidden_x"] == [128]


def test_given_settings_differ_from_defaults() -> None:
    """A value that equals the default counts as given, and config.toml keeps that apart."""
    assert Settings.from_mapping({}).to_be_chosen == BY_TOWER
    given = Settings.preset("default", max_epochs=60)
    assert given.given == ("max_epochs",)
    assert set(given.to_be_chosen) == {*BY_TOWER} - {"max_epochs"}
    assert given.as_dict()["max_epochs"] == 60
    assert not {"given", "patience"} & set(given.as_dict())
    some = Settings().changed(**{name: getattr(Settings, name) for name in BY_TOWER})
    for settings in (given, some, some.changed(given=BY_TOWER), given.changed(method="ccal")):
        again = Settings.from_mapping(settings.as_dict())
        assert again.to_be_chosen == settings.to_be_chosen
        assert again.as_dict() == settings.as_dict()
