"""The scikit-learn estimator protocol, without depending on scikit-learn."""

from __future__ import annotations

import inspect
from typing import Any, Self

from ccal.errors import InputError

__all__ = ["Estimator"]


class Estimator:
    """Parameters are the arguments of `__init__`, stored under their names exactly as given.

    >>> class Scale(Estimator):
    ...     def __init__(self, factor=1.0):
    ...         self.factor = factor
    >>> Scale().set_params(factor=2.0)
    Scale(factor=2.0)
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
        """What scikit-learn asks of an estimator that it is given; only then is it imported."""
        from sklearn.utils import Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=True, multi_output=True, two_d_labels=True),
            transformer_tags=TransformerTags(),
        )
