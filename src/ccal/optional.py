"""Modules that are imported when they are first needed."""

import ast
import pkgutil
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from ccal.errors import CcalError


def install_command(extra: str) -> str:
    """How to install an extra; the name `ccal` on PyPI is another project's.

    >>> install_command("music")
    "pip install '.[music]' in a clone of ccal"
    """
    return f"pip install '.[{extra}]' in a clone of ccal"


def require(module: str, *, purpose: str, extra: str = "", package: str = "") -> Any:
    """Import `module`, or say which extra of ccal, or which package, has to be installed.

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
            f"install it with: {install_command(extra) if extra else f'pip install {package}'}"
        ) from error


def lazy_names(package: str) -> tuple[Callable[[str], Any], list[str]]:
    """`__getattr__` and `__all__` of a package whose names are listed once, in `__init__.pyi`.

    Type checkers read that file as it is. Here it says where each name is imported from when it is
    first used: torch takes seconds, which `ccal --help` must not.
    """
    stub = ast.parse(pkgutil.get_data(package, "__init__.pyi") or b"")
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    module_of = {name.name: str(node.module) for node in imports for name in node.names}

    def get(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if module_of[name] == package:
            return import_module(f"{package}.{name}")
        value = getattr(import_module(module_of[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return get, [name for name, module in module_of.items() if module != package]
