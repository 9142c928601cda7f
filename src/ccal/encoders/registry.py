"""Towers and front ends by name, so that a saved model is built again from JSON, without pickle.

A class registers under a name and has a method `config()`, which returns its constructor's
arguments as plain data; `Tower` has one. A saved model holds that data with the name as "type".

>>> @register_tower("half")
... class Half(nn.Module):
...     def config(self):
...         return {}
...     def forward(self, x):
...         return x / 2
>>> tower_config(Half())
{'type': 'half'}
>>> build_tower({"type": "half"})
Half()
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from numpy.typing import NDArray
from torch import nn

from ccal.errors import InputError

Part = TypeVar("Part")
Class = TypeVar("Class", bound=type)


class Tower(nn.Module):
    """A network that keeps the arguments of its constructor as attributes of the same names."""

    def config(self) -> dict[str, Any]:
        """Constructor arguments, as plain data."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}


class FrontEnd(Protocol):
    """From raw items of a modality, such as texts, to rows of features."""

    def transform(self, items: Sequence[Any], /) -> NDArray[Any]:
        """Features (n, d) of n items."""
        ...

    def config(self) -> dict[str, Any]:
        """Plain data from which the constructor, or `from_config`, makes the same front end."""
        ...


class _Registry(Generic[Part]):
    def __init__(self, kind: str, decorator: str) -> None:
        self._kind, self._decorator = kind, decorator
        self._builders: dict[str, Callable[..., Part]] = {}

    def register(self, name: str) -> Callable[[Class], Class]:
        """Class decorator: a part of this class can be saved and loaded.

        The class needs a method `config()` that returns its constructor's arguments as plain data;
        and `from_config(**config)` if the constructor does not take them.
        """

        def decorate(cls: Class) -> Class:
            self._builders[name] = getattr(cls, "from_config", cls)
            cls.part_name = name  # type: ignore[attr-defined]
            return cls

        return decorate

    def config(self, part: Part) -> dict[str, Any]:
        """Plain data from which a part like this one can be built, with fresh weights."""
        name, config = getattr(part, "part_name", None), getattr(part, "config", None)
        if name not in self._builders or not callable(config):
            raise InputError(
                f"A {type(part).__name__} cannot be saved: it is no registered {self._kind}. "
                f"Decorate its class with @ccal.encoders.{self._decorator}('name') and give it a "
                "config() method."
            )
        return {"type": name, **config()}

    def build(self, config: dict[str, Any]) -> Part:
        """The part that such plain data describes."""
        arguments = dict(config)
        name = arguments.pop("type", None)
        if name not in self._builders:
            known = ", ".join(sorted(self._builders))
            raise InputError(f"There is no {self._kind} of type {name!r}; known types are {known}.")
        return self._builders[name](**arguments)


_TOWERS = _Registry[nn.Module]("tower", "register_tower")
register_tower = _TOWERS.register
"""Class decorator: towers of this class can be saved and loaded under a name."""
tower_config = _TOWERS.config
"""Plain data from which `build_tower` makes such a tower, with fresh weights."""
build_tower = _TOWERS.build
"""The tower that such plain data describes."""

_FRONT_ENDS = _Registry[FrontEnd]("front end", "register_front_end")
register_front_end = _FRONT_ENDS.register
"""Class decorator: front ends of this class can be saved and loaded under a name."""
front_end_config = _FRONT_ENDS.config
"""Plain data from which `build_front_end` makes the same front end."""
build_front_end = _FRONT_ENDS.build
"""The front end that such plain data describes."""
