"""What the tests of the readers share: image files, and problems seen with and without strict."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ccal.data import Table
from ccal.data.published.captions import LEAVE_OUT
from ccal.errors import InputError

HINT = f"\n{LEAVE_OUT}"


def touch(folder: Path, *names: str) -> Path:
    """A folder with image files of these names; no reader looks into them."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\xff\xd8\xff")
    return folder


def problems_of(read: Callable[[bool], Table]) -> tuple[Table, list[str]]:
    """The table without its problems, and these, which `read(strict)` tells in either case."""
    with pytest.raises(InputError) as error:
        read(True)
    table = read(False)
    assert str(error.value) == f"{table.bad}{HINT}"
    return table, table.bad.shown


def split_of(table: Table) -> list[str]:
    assert table.split is not None
    return [str(part) for part in table.split]


def group_of(table: Table) -> list[int]:
    assert table.pairs.group is not None
    return [int(group) for group in table.pairs.group]


def label_of(table: Table) -> list[str]:
    assert table.pairs.label is not None
    return [str(label) for label in table.pairs.label]
