"""Image files of a folder, and reports on those that cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from ccal.errors import InputError
from ccal.features import find_images, scan_images
from tests.features.pictures import picture, write_pictures


def with_bad_ones(folder: Path) -> list[str]:
    paths = write_pictures(folder, 6)
    Path(paths[1]).write_bytes(b"")
    Path(paths[4]).write_bytes(b"words")
    return [*paths, str(folder / "gone.png")]


def test_strict_lists_all_bad_images(tmp_path: Path) -> None:
    paths = with_bad_ones(tmp_path)
    with pytest.raises(InputError) as caught:
        scan_images(paths)
    lines = str(caught.value).splitlines()
    assert lines[0] == "3 of 7 images cannot be read:"
    assert [line.split(": ")[0].strip() for line in lines[1:]] == [paths[1], paths[4], paths[6]]


def test_otherwise_they_are_left_out(tmp_path: Path) -> None:
    paths, calls = with_bad_ones(tmp_path), []
    scan = scan_images(
        paths, strict=False, limit=2, progress=lambda done, total: calls.append((done, total))
    )
    assert scan.good.tolist() == [0, 2, 3, 5]
    assert list(scan.looks) == [paths[row] for row in scan.good]
    assert scan.looks[paths[0]].shape == (16 * 16 * 3,)
    assert (scan.bad.total, len(scan.bad.shown)) == (3, 2)
    assert str(scan.bad).endswith("... and 1 more")
    assert calls == [(n, 7) for n in range(1, 8)]


def test_a_path_is_read_once_however_often_it_occurs(tmp_path: Path) -> None:
    paths = with_bad_ones(tmp_path)[:2] * 3
    scan = scan_images(paths, strict=False)
    assert scan.good.tolist() == [0, 2, 4]
    assert (scan.bad.total, scan.bad.images) == (1, 2)


def test_nothing_readable_is_refused_in_any_case(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="1 of 1 images"):
        scan_images([tmp_path / "gone.jpg"], strict=False)


def test_good_and_empty_lists(tmp_path: Path) -> None:
    scan = scan_images(write_pictures(tmp_path, 3))
    assert (scan.good.tolist(), bool(scan.bad)) == ([0, 1, 2], False)
    assert len(scan_images([]).good) == 0


def test_find_images_sorted_at_any_depth(tmp_path: Path) -> None:
    names = ["b/2.JPG", "b/10.jpg", "a.png", "c/d/e.webp"]
    for name in [*names, ".hidden/x.png", "c/._e.png", "notes.txt"]:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        picture().save(path, "PNG")
    found = [Path(path).relative_to(tmp_path).as_posix() for path in find_images(tmp_path)]
    assert found == ["a.png", "b/10.jpg", "b/2.JPG", "c/d/e.webp"]
    assert scan_images(find_images(tmp_path)).good.tolist() == [0, 1, 2, 3]


def test_find_images_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no folder"):
        find_images(tmp_path / "gone")
    with pytest.raises(InputError, match=r"holds no image files.*\.jpg"):
        find_images(tmp_path)
