"""Parameters of `CCA`, checked at the door of `fit`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite
from numbers import Integral, Real
from typing import Any

from ccal.errors import InputError

__all__ = ["Settings"]


@dataclass(frozen=True)
class Settings:
    """What `CCA` was asked for; `ridge` and `power` are None where they are to be chosen."""

    n_components: int | None
    ridge: tuple[float, float] | None
    relative_ridge: bool
    power: float | None
    validation_fraction: float
    random_state: int | None
    chunk_rows: int | None
    verbose: bool

    @classmethod
    def of(cls, params: dict[str, Any]) -> Settings:
        """Check the parameters of an estimator and name the one that is wrong."""
        fraction = params["validation_fraction"]
        if not (_is_real(fraction) and 0 < fraction < 1):
            raise InputError(
                f"validation_fraction must lie strictly between 0 and 1, got {fraction!r}."
            )
        return cls(
            n_components=_count(params, "n_components", 1),
            ridge=_ridge(params["ridge"]),
            relative_ridge=bool(params["relative_ridge"]),
            power=_power(params["power"]),
            validation_fraction=float(fraction),
            random_state=_count(params, "random_state", 0),
            chunk_rows=_count(params, "chunk_rows", 1),
            verbose=bool(params["verbose"]),
        )

    @property
    def automatic(self) -> bool:
        """Whether anything is left to choose."""
        return self.ridge is None or self.power is None

    def chosen(self, ridge: tuple[float, float], power: float) -> Settings:
        """The same settings with nothing left to choose."""
        return replace(self, ridge=ridge, power=power)

    def components(self, dim_x: int, dim_y: int, samples: int) -> int:
        """Number of components to compute."""
        if samples < 2:
            raise InputError(f"CCA needs at least 2 samples, got {samples}.")
        limit = min(dim_x, dim_y, samples - 1)
        if self.n_components is not None and self.n_components > limit:
            raise InputError(
                f"n_components must be at most min(d_x, d_y, samples - 1) = min({dim_x}, {dim_y}, "
                f"{samples - 1}) = {limit}, got {self.n_components}."
            )
        return self.n_components or limit


def _is_real(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and isfinite(value)


def _count(params: dict[str, Any], name: str, least: int) -> int | None:
    value = params[name]
    if value is None:
        return None
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise InputError(f"{name} must be None or an integer of at least {least}, got {value!r}.")
    return int(value)


def _power(power: Any) -> float | None:
    if isinstance(power, str) and power == "auto":
        return None
    if not _is_real(power) or power < 0:
        raise InputError(f"power must be 'auto' or a number of at least 0, got {power!r}.")
    return float(power)


def _ridge(ridge: Any) -> tuple[float, float] | None:
    if isinstance(ridge, str) and ridge == "auto":
        return None
    pair = tuple(ridge) if isinstance(ridge, (tuple, list)) else (ridge, ridge)
    if len(pair) != 2 or not all(_is_real(r) and r >= 0 for r in pair):
        raise InputError(
            "ridge must be 'auto', a number of at least 0, or a pair of them, one for each view; "
            f"got {ridge!r}."
        )
    return float(pair[0]), float(pair[1])
