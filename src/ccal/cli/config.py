"""Settings from a preset, a TOML file, `--set` and flags; the later ones win."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccal.cli.options import FLAGS, LAYOUT_VIEWS
from ccal.errors import InputError
from ccal.toml import read_toml

if TYPE_CHECKING:
    from ccal.training import Settings

__all__ = ["make_settings", "parse_set", "read_config"]

_READ, _IGNORED = ("train", "data"), ("run", "found")


def read_config(path: Path | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tables [train] and [data] of a file, checked key by key; empty without a file.

    A `config.toml` of a run is fine too; what else it says is passed over.
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
    # What a file calls `pairs.csv` lies next to it; a run's config.toml says where, as `folder`.
    if data:
        data["folder"] = str(Path(path.parent, data.get("folder", ".")).absolute())
    return train, data


def make_settings(params: Mapping[str, Any], file: Mapping[str, Any], **changes: Any) -> Settings:
    """Settings from the parameters of a command and the [train] table of its file."""
    from ccal.training import Settings

    file = dict(file)
    of_file = file.pop("preset", None)
    preset = params.get("preset") or of_file or "default"
    flags = {field: params[name] for name, field in FLAGS.items() if params.get(name) is not None}
    given = {**file, **parse_set(params.get("set") or ()), **flags, **changes}
    return Settings.preset(preset, **given)


def parse_set(entries: Iterable[str]) -> dict[str, Any]:
    """The values of `--set name=value`, written as in TOML; what is no TOML is text.

    >>> parse_set(["margin=0.3", "hidden_y=[512, 512]", "loss=ranking"])
    {'margin': 0.3, 'hidden_y': [512, 512], 'loss': 'ranking'}
    """
    values = {}
    for entry in entries:
        name, equals, text = (part.strip() for part in entry.partition("="))
        if not (name and equals and text):
            raise InputError(f"--set takes NAME=VALUE, as in --set margin=0.3; got {entry!r}.")
        try:
            values[name] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            values[name] = text
    return values


def _check(path: Path, train: Mapping[str, Any], data: Mapping[str, Any]) -> None:
    from ccal.data import Source
    from ccal.training import Settings

    known = {"train": [*Settings.__dataclass_fields__, "preset"]}
    known["data"] = list(Source.__dataclass_fields__)
    for table, values in (("train", train), ("data", data)):
        for key in values:
            if key not in known[table]:
                other = "data" if table == "train" else "train"
                hint = _nearest(key, known[table]) or (
                    f"it belongs below [{other}]."
                    if key in known[other]
                    else f"there are {', '.join(known[table])}."
                )
                raise InputError(f"{path}: [{table}] has no {key!r}; {hint}")
    settings = {key: value for key, value in train.items() if key != "preset"}
    for table, values in (("train", settings), ("data", data)):
        # One at a time, so that the file can be named with the value that is wrong in itself.
        for key, value in values.items():
            try:
                if table == "train":
                    Settings.from_mapping({key: value})
                else:
                    names = {"x": "x.npy", "y": "y.npy", "table": "pairs.csv"}
                    if key == "layout":
                        names |= LAYOUT_VIEWS
                    Source.from_mapping({**names, key: value})
            except InputError as error:
                raise InputError(f"{path} [{table}]: {error}") from error


def _nearest(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {close[0]!r}?" if close else ""
