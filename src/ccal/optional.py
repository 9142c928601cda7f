"""Modules that are imported when they are first needed."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from ccal.errors import CcalError


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


def lazy_names(package: str, modules: Mapping[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """A `__getattr__` for a package: each name is imported from its module when first used.

    `modules` maps a module of the package, without the package's name, to the names in it. The
    modules themselves are names of the package, too.
    """
    module_of = {name: module for module, names in modules.items() for name in names}

    def get(name: str) -> Any:
        if name in modules:
            return import_module(f"{package}.{name}")
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{module_of[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return get
