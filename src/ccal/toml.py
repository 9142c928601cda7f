"""TOML as people read it: tables of plain values, written by us and read with tomllib."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ccal.errors import InputError

__all__ = ["read_toml", "to_toml"]

_BARE = re.compile(r"[A-Za-z0-9_-]+")
# TOML lets a basic string hold anything but quotes, backslashes and control characters.
_ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "\b": "\\b",
    "\t": "\\t",
    "\n": "\\n",
    "\f": "\\f",
    "\r": "\\r",
}


def to_toml(tables: Mapping[str, Mapping[str, Any]], comment: str = "") -> str:
    """Tables of texts, numbers, truth values and lists of these; values that are None are left out.

    >>> print(to_toml({"train": {"method": "ccal", "dim": 64, "hidden_x": []}}, "Written by ccal."))
    # Written by ccal.
    <BLANKLINE>
    [train]
    method = "ccal"
    dim = 64
    hidden_x = []
    <BLANKLINE>
    """
    head = "".join(f"# {line}\n" for line in comment.splitlines())
    parts = [head] if head else []
    for name, table in tables.items():
        lines = [f"{_key(k)} = {_value(v)}\n" for k, v in table.items() if v is not None]
        parts.append("".join([f"[{_key(name)}]\n", *lines]))
    return "\n".join(parts)


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file, or an error with its name and the line that is wrong."""
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file.") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}).") from error
    except ValueError as error:  # not UTF-8, or not TOML
        raise InputError(f"{path}: not a readable TOML file ({error}).") from error


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        # repr reads back as the same float; TOML spells what is not finite without a capital.
        return repr(value) if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Sequence):
        return f"[{', '.join(map(_value, value))}]"
    raise TypeError(f"no TOML for a {type(value).__name__}: {value!r}")


def _text(text: str) -> str:
    return f'"{"".join(map(_escape, text))}"'


def _escape(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    return f"\\u{ord(char):04x}" if ord(char) < 32 or ord(char) == 127 else char
