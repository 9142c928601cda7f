"""Arrays in files and folders: what is written comes back, what is damaged is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ccal.array_files import ArrayFile, ArrayFolder, DamagedFileError, write_array_file
from ccal.errors import CcalError, InputError

ROWS = np.arange(700, dtype=np.int64)
VECTORS = np.random.default_rng(0).normal(size=(700, 3)).astype(np.float16)


def layout(about: dict[str, Any]) -> list[tuple[Any, tuple[int, ...]]]:
    return [(np.int64, (about["count"],)), (np.float16, (about["count"], 3))]


def write(folder: Path) -> Path:
    write_array_file(folder / "a", {"count": 700, "name": "é"}, ROWS, VECTORS)
    return folder / "a"


def test_arrays_come_back_page_by_page(tmp_path: Path) -> None:
    file = ArrayFile(write(tmp_path), layout)
    file.verify()
    assert file.about["name"] == "é"
    for found, expected in zip(file.arrays, (ROWS, VECTORS), strict=True):
        np.testing.assert_array_equal(found, expected)
    content = file.path.read_bytes()
    # The header takes a page, the rows are padded to two, the last array is not padded.
    assert content[4096 : 4096 + 5600] == ROWS.tobytes()
    assert content[3 * 4096 :] == VECTORS.tobytes()


def test_writing_to_a_mapped_array_changes_no_file(tmp_path: Path) -> None:
    path = write(tmp_path)
    ArrayFile(path, layout).arrays[0][:] = 0
    ArrayFile(path, layout).verify()


def test_empty_arrays(tmp_path: Path) -> None:
    write_array_file(tmp_path / "a", {"count": 0}, ROWS[:0], VECTORS[:0])
    file = ArrayFile(tmp_path / "a", layout)
    file.verify()
    assert [array.shape for array in file.arrays] == [(0,), (0, 3)]


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda content: content[:-1], "bytes, not"),
        (lambda content: content + b"\0", "bytes, not"),
        (lambda content: b"", "header is damaged"),
        (lambda content: b"\0" + content[1:], "header is damaged"),
    ],
)
def test_damage_that_opening_sees(tmp_path: Path, harm: Any, message: str) -> None:
    path = write(tmp_path)
    path.write_bytes(harm(path.read_bytes()))
    with pytest.raises(DamagedFileError, match=message):
        ArrayFile(path, layout)


def test_damage_that_only_reading_sees(tmp_path: Path) -> None:
    path = write(tmp_path)
    content = bytearray(path.read_bytes())
    content[5000] ^= 1
    path.write_bytes(content)
    with pytest.raises(DamagedFileError, match="checksum"):
        ArrayFile(path, layout).verify()
    path.unlink()
    with pytest.raises(DamagedFileError, match="No such file"):
        ArrayFile(path, layout)


def folder_of(path: Path, **options: Any) -> ArrayFolder:
    return ArrayFolder(path, "all.json", 3, kind="store", **options)


def fill(folder: ArrayFolder, vectors: Any) -> dict[str, Any]:
    parts = np.array_split(vectors, 4)
    entry = folder.write_array("vectors", vectors.dtype, vectors.shape, parts)
    about = {"count": len(vectors), "files": {"vectors": entry}}
    folder.finish(about)
    return about


def test_a_folder_is_replaced_in_one_step(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    fill(folder, VECTORS)
    fill(folder, 2 * VECTORS)
    about = folder.read(["count", "files"])
    found = folder.array(about, "vectors", np.float16, (700, 3))
    np.testing.assert_array_equal(found, 2 * VECTORS)
    found[:] = 0  # in memory only
    folder.array(about, "vectors", np.float16, (700, 3))
    assert len(list(tmp_path.iterdir())) == 2


def test_a_failure_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected 9 rows, got 2"):
        folder_of(tmp_path).write_array("a", np.int64, (9,), [ROWS[:2]])
    assert list(tmp_path.iterdir()) == []


def test_damage_of_a_folder_is_named(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    about = fill(folder, VECTORS)
    path = tmp_path / about["files"]["vectors"]["name"]
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(InputError, match=r"the store .* is damaged: the content of vectors-\w+"):
        folder.array(about, "vectors", np.float16, (700, 3))
    path.write_bytes(content)
    with pytest.raises(CcalError, match=r"has the shape \(700, 3\) of float16"):
        folder.array(about, "vectors", np.float16, (700, 4))
    path.write_bytes(content[:-1])
    with pytest.raises(CcalError, match=r"has 4,327 bytes, not 4,328"):
        folder.array(about, "vectors", np.float16, (700, 3))
    path.unlink()
    with pytest.raises(CcalError, match=r"is missing\. Delete the folder and build it again"):
        folder.array(about, "vectors", np.float16, (700, 3))


def test_a_manifest_that_cannot_be_used(tmp_path: Path) -> None:
    class OwnError(CcalError):
        pass

    folder = folder_of(tmp_path, error=OwnError)
    about = fill(folder, VECTORS)
    with pytest.raises(OwnError, match=r"all\.json cannot be read \('level' is missing\)"):
        folder.read(["level"])
    (tmp_path / "all.json").write_text(json.dumps({**about, "format": 4}))
    with pytest.raises(InputError, match="has the format 4, and this version of ccal reads 3"):
        folder.read([])
    (tmp_path / "all.json").write_text("{")
    with pytest.raises(OwnError, match=r"damaged: all\.json cannot be read"):
        folder.read([])
