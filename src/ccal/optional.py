"""Packages that only some people need, imported when they are needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ccal.errors import CcalError

__all__ = ["require"]


def require(module: str, extra: str, purpose: str) -> Any:
    """Import `module`, or say which extra of ccal brings it.

    >>> require("json", extra="text", purpose="Lemmatising").dumps([1])
    '[1]'
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != module.split(".")[0]:
            raise
        raise CcalError(
            f"{purpose} needs the package {module.split('.')[0]}; "
            f"install it with: pip install 'ccal[{extra}]'"
        ) from error
