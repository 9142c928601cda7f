"""The files of published data sets: lists of names, JSON, folders."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

from ccal.data.splits import split_name
from ccal.errors import InputError

FilePath: TypeAlias = str | PathLike[str]


def existing_folder(folder: FilePath) -> Path:
    """The folder, if there is one."""
    path = Path(folder)
    if not path.is_dir():
        raise InputError(
            f"{path}: {'a file, not a folder' if path.exists() else 'no such folder'}."
        )
    return path


def visible(folder: Path, pattern: str) -> list[Path]:
    """Paths in a folder that match, sorted, without hidden files, which macOS adds to archives."""
    return sorted(path for path in folder.glob(pattern) if not path.name.startswith("."))


def read_lines(path: FilePath) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, without white space around them, numbered from 1.

    Bytes that are not UTF-8 become surrogates, so that only the captions that have them are bad.
    """
    path = existing_file(path)
    with path.open(encoding="utf-8-sig", errors="surrogateescape") as file:
        for number, line in enumerate(file, start=1):
            if text := line.strip():
                yield number, text


def read_json(path: FilePath, *lists: str) -> list[list[Any]]:
    """The lists of these names in a JSON file, which must be an object."""
    path = existing_file(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise InputError(f"{path}, {where}: not JSON ({error.msg}); is it complete?") from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path}: not JSON in UTF-8 ({error}).") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: expected a JSON object, got a {type(content).__name__}.")
    for name in lists:
        if not isinstance(content.get(name), list):
            known = ", ".join(map(repr, content)) or "nothing"
            raise InputError(f"{path}: expected a list {name!r}; the file has {known}.")
    return [content[name] for name in lists]


@dataclass(frozen=True)
class Listed:
    """The part (train, valid or test) that a list gives a name, and the line that does."""

    split: str
    place: str


def read_lists(lists: Mapping[str, FilePath]) -> dict[str, Listed]:
    """The part of each name, from files with one name a line, given by part: train, valid or test.

    A name in two parts is refused even without `strict`: dropping it from either part would
    change the published split.
    """
    listed: dict[str, Listed] = {}
    for key, path in lists.items():
        part = split_name(key)
        if part is None:
            raise InputError(
                f"{os.fspath(path)!r} is given for {key!r}; expected train, valid or test."
            )
        for line, name in read_lines(path):
            new = Listed(part, f"{Path(path).name} line {line}")
            old = listed.setdefault(name, new)
            if old.split != part:
                raise InputError(
                    f"{name} is for {old.split} in {old.place}, but for {part} in {new.place}; "
                    "one of them must go."
                )
    if not listed:
        raise InputError(
            "the lists of train, valid and test name nothing; give files of one name a line."
        )
    return listed


def existing_file(path: FilePath) -> Path:
    """The file, if there is one."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: {'is a folder' if path.is_dir() else 'no such file'}.")
    return path
