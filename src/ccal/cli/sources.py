"""Where the pairs of a command come from: its options over the [data] table of its file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccal.cli.console import note
from ccal.cli.options import DATA, LAYOUT_VIEWS
from ccal.errors import InputError

if TYPE_CHECKING:
    from ccal.data import Data, Source

__all__ = ["any_data_options", "make_source", "read_source"]


def any_data_options(params: Mapping[str, Any]) -> bool:
    """Whether a command was told anything about its data."""
    return any(params.get(name) is not None for name in DATA)


def make_source(params: Mapping[str, Any], file: Mapping[str, Any]) -> Source:
    """The source that options describe, over what a file says."""
    from ccal.data import Source

    given = {name: params[name] for name in DATA if params.get(name) is not None}
    for name in ("valid", "test"):
        if name in given:
            given[name] = _size(f"--{name}", given[name])
    if "table" in given:
        given["table"] = str(given["table"])
    if given.get("layout", file.get("layout")) is not None:
        given = {**{k: v for k, v in LAYOUT_VIEWS.items() if k not in file}, **given}
    values: dict[str, Any] = {**file, **given}
    if values.get("x") is None or values.get("y") is None:
        lacking = " and ".join(f"--{name}" for name in ("x", "y") if values.get(name) is None)
        raise InputError(
            f"{lacking} missing: which two things belong together? For arrays: --x images.npy "
            "--y texts.npy; for a table: pairs.csv --x image --y text; for a published data set: "
            "its folder and --layout."
        )
    here = os.getcwd()
    if file.get("folder", here) != here:
        # Options are relative to where one stands, the file's paths to its own folder.
        given = _from_here(given, has_table=values.get("table") is not None)
    return Source.from_mapping({**file, **given, "folder": file.get("folder", here)})


def read_source(source: Source) -> Data:
    """Read the pairs, and say what was left out."""
    from ccal.data import read_source

    data = read_source(source)
    for text in data.notes:
        note(f"warning: {text}")
    if len(data.split.valid) == 0:
        raise InputError("There are no validation pairs, which training needs; raise --valid.")
    return data


def _size(option: str, text: str) -> float | int:
    """A fraction such as 0.1, or a number such as 500."""
    try:
        return int(text) if text.lstrip("+-").isdigit() else float(text)
    except ValueError as error:
        raise InputError(f"{option} must be a fraction or a whole number, got {text!r}.") from error


def _from_here(given: Mapping[str, Any], *, has_table: bool) -> dict[str, Any]:
    """Options with their relative files made absolute."""
    from ccal.data import View

    values = dict(given)
    for name in {"table", "files"} & set(values):
        values[name] = str(Path(values[name]).absolute())
    for name in {"x", "y"} & set(values):
        view = View.of(values[name], table=has_table)
        if view.file is not None:
            key = f":{view.key}" if view.key else ""
            values[name] = f"{view.name}={Path(view.file).absolute()}{key}"
    return values
