"""Parts of a model by name, so that a saved one is built again from plain text, without pickle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from numpy.typing import NDArray
from torch import nn

from ccal.errors import InputError

__all__ = [
    "FrontEnd",
    "build_front_end",
    "build_tower",
    "front_end_config",
    "register_front_end",
    "register_tower",
    "tower_config",
]

Part = TypeVar("Part")
Class = TypeVar("Class", bound=type)


class FrontEnd(Protocol):
    """From raw items of a modality, such as texts, to rows of features.

    `config()` returns the constructor's arguments as plain data.
    """

    def transform(self, items: Sequence[Any], /) -> NDArray[Any]:
        """Features (n, d) of n items."""
        ...

    def config(self) -> dict[str, Any]:
        """Plain data from which `from_config` makes the same front end."""
        ...


class _Registry(Generic[Part]):
    def __init__(self, kind: str, decorator: str) -> None:
        self._kind, self._decorator = kind, decorator
        self._builders: dict[str, Callable[..., Part]] = {}

    def register(self, name: str) -> Callable[[Class], Class]:
        def decorate(cls: Class) -> Class:
            self._builders[name] = getattr(cls, "from_config", cls)
            cls.part_name = name  # type: ignore[attr-defined]
            return cls

        return decorate

    def config(self, part: Part) -> dict[str, Any]:
        name, config = getattr(part, "part_name", None), getattr(part, "config", None)
        if name not in self._builders or not callable(config):
            raise InputError(
                f"A {type(part).__name__} cannot be saved: it is no registered {self._kind}. "
                f"Decorate its class with @ccal.encoders.{self._decorator}('name') and give it a "
                "config() method."
            )
        return {"type": name, **config()}

    def build(self, config: dict[str, Any]) -> Part:
        arguments = dict(config)
        name = arguments.pop("type", None)
        if name not in self._builders:
            known = ", ".join(sorted(self._builders))
            raise InputError(f"There is no {self._kind} of type {name!r}; known types are {known}.")
        return self._builders[name](**arguments)


_TOWERS = _Registry[nn.Module]("tower", "register_tower")
_FRONT_ENDS = _Registry[FrontEnd]("front end", "register_front_end")


def register_tower(name: str) -> Callable[[Class], Class]:
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
    return _TOWERS.register(name)


def tower_config(tower: nn.Module) -> dict[str, Any]:
    """Plain data from which `build_tower` makes a tower like this one, with fresh weights."""
    return _TOWERS.config(tower)


def build_tower(config: dict[str, Any]) -> nn.Module:
    """The tower that `tower_config` described.

    >>> from ccal.encoders import DenseTower
    >>> build_tower(tower_config(DenseTower(4, 2, hidden=(8,)))).out_features
    2
    """
    return _TOWERS.build(config)


def register_front_end(name: str) -> Callable[[Class], Class]:
    """Class decorator: a model with a front end of this name can be saved and loaded.

    The class needs `transform` and `config`; `from_config(**config)` if the constructor does not
    take the arguments that `config()` returns.
    """
    return _FRONT_ENDS.register(name)


def front_end_config(front_end: FrontEnd) -> dict[str, Any]:
    """Plain data from which `build_front_end` makes the same front end."""
    return _FRONT_ENDS.config(front_end)


def build_front_end(config: dict[str, Any]) -> FrontEnd:
    """The front end that `front_end_config` described."""
    return _FRONT_ENDS.build(config)
