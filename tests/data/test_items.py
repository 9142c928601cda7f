"""Items of one modality from files, and the same items read a second time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from ccal.data.items import can_read_again, read_again, read_items, write_embeddings
from ccal.encoders import DenseTower
from ccal.errors import InputError
from ccal.model import DualEncoder


def test_rows_of_an_archive_are_read_again(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    np.savez(tmp_path / "several.npz", a=rows, b=rows[:1])
    given = read_items(tmp_path / "several.npz", key="a")
    assert given.files is not None
    assert given.files[3] == f"{tmp_path / 'several.npz'}:a#3"
    assert all(map(can_read_again, given.files))
    np.testing.assert_array_equal(read_again(given.files[::2]), rows[::2])
    assert not can_read_again(str(tmp_path / "gone.npy#0"))
    with pytest.raises(InputError, match=r"has 4 rows; row 4 was indexed from it"):
        read_again([f"{tmp_path / 'several.npz'}:a#4"])
    with pytest.raises(InputError, match=r"robin\.jpg is no row of an array"):
        read_again([given.files[0], "robin.jpg"])


def test_a_table_of_image_files_names_them_from_its_folder(tmp_path: Path) -> None:
    (tmp_path / "birds.csv").write_text("file,name,year\nrobin.jpg,r,1990\nwren.jpg,w,\n")
    given = read_items(
        tmp_path / "birds.csv", column="file", id_column="name", metadata=["year"], images=True
    )
    assert (
        given.items == given.files == [str(tmp_path / name) for name in ("robin.jpg", "wren.jpg")]
    )
    assert given.ids == ["r", "w"]
    assert given.metadata == [{"year": 1990}, {"year": None}]


def test_lines_keep_their_numbers(tmp_path: Path) -> None:
    (tmp_path / "birds.txt").write_bytes("a robin\r\n\na\x0cwren\u2028sings\n".encode())
    given = read_items(tmp_path / "birds.txt")
    assert given.items == ["a robin", "", "a\x0cwren\u2028sings"]
    assert given.notes == ("warning: 1 of 3 lines are blank.",)
    with pytest.raises(InputError, match="name its --column"):
        read_items(tmp_path / "birds.txt", id_column="name")


def test_embeddings_are_written_with_progress(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = DualEncoder(dim=2, projection="none", image=DenseTower(3, 2), text=DenseTower(3, 2))
    rows = np.ones((5, 3), dtype=np.float32)
    told: list[tuple[int, int]] = []
    shape = write_embeddings(
        tmp_path / "out.npy", model.eval(), "image", rows, progress=lambda *at: told.append(at)
    )
    assert shape == (5, 2)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), model.encode("image", rows))
    assert told == [(5, 5)]
