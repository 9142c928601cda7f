"""scikit-learn's conventions for an estimator of two views, without importing scikit-learn."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, Self, TypeVar, cast

from ccal.errors import InputError

Method = TypeVar("Method", bound=Callable[..., Any])


def accept_y(method: Method) -> Method:
    """Let the keyword `y`, scikit-learn's name of the second argument, stand for `Y`."""

    @wraps(method)
    def call(self: Any, *args: Any, **options: Any) -> Any:
        if "y" in options:
            y = options.pop("y")
            return method(self, *args, Y=y, **options)
        return method(self, *args, **options)

    return cast(Method, call)


class Estimator:
    """scikit-learn's estimator protocol, without importing scikit-learn.

    Parameters are the arguments of `__init__`, stored under their names exactly as given.
    """

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        signature = inspect.signature(cls)
        return {name: p.default for name, p in signature.parameters.items()}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name. `deep` changes nothing: no parameter is an estimator."""
        return {name: getattr(self, name) for name in self._defaults()}

    def set_params(self, **params: Any) -> Self:
        """Change parameters; they are checked by the next `fit`."""
        known = self._defaults()
        for name, value in params.items():
            if name not in known:
                raise InputError(
                    f"{type(self).__name__} has no parameter {name!r}; it has {', '.join(known)}."
                )
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        default = self._defaults()
        changed = [f"{k}={v!r}" for k, v in self.get_params().items() if v is not default[k]]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_tags__(self) -> Any:
        """Facts that scikit-learn asks an estimator for; only then is it imported."""
        from sklearn.utils import Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=True, multi_output=True, two_d_labels=True),
            transformer_tags=TransformerTags(preserves_dtype=["float64", "float32"]),
        )
