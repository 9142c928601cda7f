"""What we write as TOML reads back as it was."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccal.errors import InputError
from ccal.runs.config import read_toml, to_toml

# TOML is UTF-8, which has no surrogates.
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
PLAIN = TEXT | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)
TABLES = st.dictionaries(TEXT, st.dictionaries(TEXT, PLAIN | st.lists(PLAIN)))


@given(TABLES)
def test_round_trip(tables: dict[str, dict[str, Any]]) -> None:
    read = tomllib.loads(to_toml(tables))
    assert read == tables
    assert repr(read) == repr(tables)  # 1 is not 1.0, nor True


def test_nan_and_what_is_left_out() -> None:
    read = tomllib.loads(to_toml({"a": {"nan": math.nan, "none": None}}, "two\nlines"))
    assert list(read["a"]) == ["nan"]
    assert math.isnan(read["a"]["nan"])


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"a = ", "not a readable TOML file"), (b"a = '\xff'", "not a readable TOML file")],
)
def test_broken_files_are_named(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"{path}: {message}"):
        read_toml(path)
    with pytest.raises(InputError, match="no such file"):
        read_toml(tmp_path / "b.toml")
    with pytest.raises(InputError, match="cannot be read"):
        read_toml(tmp_path)
