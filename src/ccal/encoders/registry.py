"""Towers by name, so that a saved model can be built again from plain text, without pickle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from torch import nn

from ccal.errors import InputError

__all__ = ["build_tower", "register_tower", "tower_config"]

Tower = TypeVar("Tower", bound=nn.Module)

_TOWERS: dict[str, type[nn.Module]] = {}


def register_tower(name: str) -> Callable[[type[Tower]], type[Tower]]:
    """Class decorator: a tower of this name can be saved and loaded.

    The class needs a method `config()` that returns its constructor's arguments as plain data.

    >>> @register_tower("half")
    ... class Half(nn.Module):
    ...     def config(self):
    ...         return {}
    ...     def forward(self, x):
    ...         return x / 2
    >>> tower_config(Half())
    {'type': 'half'}
    """

    def register(tower: type[Tower]) -> type[Tower]:
        _TOWERS[name] = tower
        tower.tower_type = name  # type: ignore[attr-defined]
        return tower

    return register


def tower_config(tower: nn.Module) -> dict[str, Any]:
    """Plain data from which `build_tower` makes a tower like this one, with fresh weights."""
    name, config = getattr(tower, "tower_type", None), getattr(tower, "config", None)
    if name is None or not callable(config):
        raise InputError(
            f"A {type(tower).__name__} cannot be saved: it is no registered tower. Decorate its "
            "class with @ccal.encoders.register_tower('name') and give it a config() method."
        )
    return {"type": name, **config()}


def build_tower(config: dict[str, Any]) -> nn.Module:
    """The tower that `tower_config` described.

    >>> from ccal.encoders import DenseTower
    >>> build_tower(tower_config(DenseTower(4, 2, hidden=(8,)))).out_features
    2
    """
    arguments = dict(config)
    name = arguments.pop("type", None)
    if name not in _TOWERS:
        known = ", ".join(sorted(_TOWERS))
        raise InputError(f"There is no tower of type {name!r}; known types are {known}.")
    return _TOWERS[name](**arguments)
