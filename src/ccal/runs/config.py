"""TOML files: the config.toml of a run, and the files that a person writes for `--config`."""

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tomli_w

from ccal.errors import InputError

LAYOUT_VIEWS = {"x": "image", "y": "text"}
"""The modalities of a published data set, unless options name them otherwise."""

FORMER_DATA = {"allow_leaks": True}
"""Values of options that earlier versions did not write to [data]."""

_READ, _IGNORED = ("train", "data"), ("run", "found")


def to_toml(tables: Mapping[str, Mapping[str, Any]], comment: str = "") -> str:
    """Tables of plain values below a comment; values that are None are left out.

    >>> print(to_toml({"train": {"method": "ccal", "dim": 64}}, "Written by ccal."))
    # Written by ccal.
    <BLANKLINE>
    [train]
    method = "ccal"
    dim = 64
    <BLANKLINE>
    """
    plain = {
        name: {key: value for key, value in table.items() if value is not None}
        for name, table in tables.items()
    }
    head = "".join(f"# {line}\n" for line in comment.splitlines())
    return f"{head}\n{tomli_w.dumps(plain)}" if head else tomli_w.dumps(plain)


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


def read_config(path: Path | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tables [train] and [data] of a file, checked key by key; empty without a file.

    A run's config.toml will do, too; its other tables are ignored.
    """
    if path is None:
        return {}, {}
    if path.is_dir():
        raise InputError(f"{path} is a folder; expected a .toml file.")
    tables = read_toml(path)
    for name, value in tables.items():
        if not isinstance(value, dict):
            raise InputError(f"{path}: {name!r} stands outside of a table; put it below [train].")
        if name not in (*_READ, *_IGNORED):
            hint = _nearest(name, _READ) or "the tables are [train] and [data]."
            raise InputError(f"{path}: there is no table [{name}]; {hint}")
    train, data = (dict(tables.get(name, {})) for name in _READ)
    _check(path, train, data)
    if "run" in tables:
        data = {**FORMER_DATA, **data}
    # Relative paths start at the file's own folder; a run's config.toml names another, `folder`.
    if data:
        data["folder"] = str(Path(path.parent, data.get("folder", ".")).absolute())
    return train, data


def _check(path: Path, train: Mapping[str, Any], data: Mapping[str, Any]) -> None:
    from ccal.data import Source
    from ccal.training.settings import Settings

    known = {"train": [*Settings.__dataclass_fields__, "preset"]}
    known["data"] = list(Source.__dataclass_fields__)
    for table, values in (("train", train), ("data", data)):
        other = "data" if table == "train" else "train"
        # One value at a time, so that the message can name the file and the table.
        for key, value in values.items():
            if key not in known[table]:
                hint = _nearest(key, known[table]) or (
                    f"it belongs below [{other}]."
                    if key in known[other]
                    else f"there are {', '.join(known[table])}."
                )
                raise InputError(f"{path}: [{table}] has no {key!r}; {hint}")
            try:
                if table == "data":
                    names = {"x": "x.npy", "y": "y.npy", "table": "pairs.csv"}
                    views = LAYOUT_VIEWS if key == "layout" else {}
                    Source.from_mapping({**names, **views, key: value})
                elif key != "preset":
                    Settings.from_mapping({key: value})
            except InputError as error:
                raise InputError(f"{path} [{table}]: {error}") from error


def _nearest(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {close[0]!r}?" if close else ""
