"""Only the files of items are shown, only pictures and sounds, and parts of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from ccal.model import load
from ccal.retrieval import Index
from ccal.serve import IndexCollection
from ccal.serve.collection import UnknownItemError
from ccal.serve.item_files import ItemFiles
from tests.serve.conftest import AWKWARD, problem
from tests.serve.live import Live

Serve = Callable[..., Live]


def get(client: httpx.Client, kind: str, id: str, **headers: str) -> httpx.Response:
    return client.get(f"/media/{kind}", params={"id": id}, headers=headers)


def test_image_and_thumbnail_of_an_item(client: httpx.Client, photos: Path) -> None:
    response = get(client, "image", AWKWARD)
    assert response.content == (photos / "0.jpg").read_bytes()
    assert response.headers["content-type"] == "image/jpeg"
    assert "sandbox" in response.headers["content-security-policy"]
    small = get(client, "thumbnail", AWKWARD)
    assert Image.open(BytesIO(small.content)).size == (64, 48)
    assert small.headers["content-type"] == "image/jpeg"
    tag = response.headers["etag"]
    again = get(client, "image", AWKWARD, **{"if-none-match": tag})
    assert (again.status_code, again.content) == (304, b"")


def test_unchanged_files_are_not_sent_again(client: httpx.Client) -> None:
    tag = get(client, "image", "1.jpg").headers["etag"]
    for known in (tag, f"W/{tag}", f'"other", {tag}'):
        found = client.get("/media/image?id=1.jpg", headers={"if-none-match": known})
        assert (found.status_code, found.content) == (304, b"")
    other = client.get("/media/image?id=1.jpg", headers={"if-none-match": '"other"'})
    assert other.status_code == 200


def test_ranges_of_a_file(client: httpx.Client, photos: Path) -> None:
    whole = (photos / "1.jpg").read_bytes()
    for given, expected in (
        ("bytes=0-9", whole[:10]),
        ("bytes=10-", whole[10:]),
        ("bytes=-5", whole[-5:]),
        (f"bytes=0-{10**9}", whole),
    ):
        part = get(client, "image", "1.jpg", range=given)
        assert (part.status_code, part.content) == (206, expected)
        assert part.headers["content-range"].endswith(f"/{len(whole)}")
    for given in ("bytes=9-1", f"bytes={10**9}-"):
        assert get(client, "image", "1.jpg", range=given).status_code == 416
    for given in ("bytes=", "bytes=-", "lines=1-2", "bytes=0-1,3-4", "bytes=x-y"):
        assert get(client, "image", "1.jpg", range=given).content == whole


def test_only_items_have_media(client: httpx.Client, photos: Path) -> None:
    for id in ("../../etc/passwd", str(photos / "1.jpg"), "/etc/passwd", "file:///etc/passwd"):
        problem(get(client, "image", id), 404)
    for kind in ("audio", "staff", "file", "_open", "__init__"):
        problem(get(client, kind, "1.jpg"), 404)
    problem(get(client, "image", "text-1"), 404)
    problem(client.get("/media/image"), 422)


@pytest.fixture
def strange(photos: Path, tmp_path: Path) -> Callable[..., IndexCollection]:
    """An index whose items point to files that must not be shown, and to a few that may."""
    model = load(photos / "model")
    outside = tmp_path / "outside"
    inside = tmp_path / "inside"
    for folder in (outside, inside):
        folder.mkdir()
    for path in (inside / "good.png", outside / "secret.png"):
        Image.new("RGB", (5, 5), "red").save(path)
    (inside / "page.jpg").write_text("<html><script>alert(1)</script></html>")
    (inside / "drawing.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    (inside / "cut.jpg").write_bytes(b"\xff\xd8\xff\xe0 and no more")
    (inside / "link.png").symlink_to(outside / "secret.png")
    (inside / "loop.png").symlink_to(inside / "loop.png")
    (inside / "way.png").symlink_to(inside / "good.png")
    os.mkfifo(inside / "pipe.png")
    Image.new("RGB", (5, 5), "red").save(inside / "old.bmp")
    Image.new("I;16", (900, 300), 30_000).save(inside / "deep.tif")
    files = [*sorted(inside.iterdir()), inside, Path("/dev/zero"), Path("good.png"), inside / "no"]
    files.append(inside / ".." / "outside" / "secret.png")

    def make(root: Path | None) -> IndexCollection:
        names = [
            str(file.relative_to(tmp_path))
            if file.is_absolute() and file.is_relative_to(tmp_path)
            else str(file)
            for file in files
        ]
        vectors = np.random.default_rng(0).normal(size=(len(files), 8))
        index = Index.build(tmp_path / "index", model, [], modality="image", replace=True)
        index.add_vectors("image", vectors, ids=names, files=files)
        return IndexCollection(index, model, root=root)

    return make


def test_files_outside_of_the_root_or_of_other_types_are_not_shown(
    serve: Serve, strange: Callable[..., IndexCollection], tmp_path: Path
) -> None:
    with serve(strange(tmp_path / "inside")).client() as client:
        for name in ("inside/good.png", "inside/way.png", "good.png"):
            assert get(client, "image", name).headers["content-type"] == "image/png"
        refused = ("page.jpg", "drawing.svg", "link.png", "loop.png", "pipe.png", "no")
        for name in (*(f"inside/{name}" for name in refused), "inside", "/dev/zero"):
            for kind in ("image", "thumbnail", "audio"):
                detail = problem(get(client, kind, name), 404)
                assert str(tmp_path) not in detail
        assert "outside" in problem(get(client, "image", "inside/link.png"), 404)
        assert "outside" in problem(get(client, "image", "inside/../outside/secret.png"), 404)
        # A damaged file is sent as it is; a thumbnail needs to be decoded.
        assert get(client, "image", "inside/cut.jpg").headers["content-type"] == "image/jpeg"
        problem(get(client, "thumbnail", "inside/cut.jpg"), 404)


def test_formats_that_browsers_do_not_show_are_converted(
    serve: Serve, strange: Callable[..., IndexCollection]
) -> None:
    with serve(strange(None)).client() as client:
        for name, size in (("old.bmp", (5, 5)), ("deep.tif", (900, 300))):
            response = get(client, "image", f"inside/{name}")
            assert response.headers["content-type"] == "image/png"
            assert Image.open(BytesIO(response.content)).size == size
        small = get(client, "thumbnail", "inside/deep.tif")
        assert Image.open(BytesIO(small.content)).size == (480, 160)
        # Without a root, links and other folders are fine: the owner put them into the index.
        assert get(client, "image", "inside/link.png").status_code == 200


def test_thumbnails_are_cached_until_the_file_changes(tmp_path: Path) -> None:
    files, path = ItemFiles(), tmp_path / "a.png"
    Image.new("RGB", (600, 300), "red").save(path)
    first: Any = files.thumbnail(str(path)).content
    assert files.thumbnail(str(path)).content is first
    Image.new("RGB", (600, 300), "blue").save(path)
    os.utime(path, ns=(1, 1))
    assert files.thumbnail(str(path)).content != first
    path.unlink()
    with pytest.raises(UnknownItemError, match="gone"):
        files.thumbnail(str(path))


def test_sounds_of_items(serve: Serve, photos: Path, tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    model = load(photos / "model")
    path = tmp_path / "a.wav"
    soundfile.write(path, np.zeros(8000), 8000)
    index = Index.build(tmp_path / "index", model, [], modality="image")
    index.add_vectors("image", np.eye(8)[:1], ids=["sound"], files=[path])
    with serve(IndexCollection(index, model)).client() as client:
        item = client.get("/api/item", params={"id": "sound"}).json()
        assert client.get(item["media"]["audio"]).headers["content-type"] == "audio/wav"
        assert item["media"]["image"] is None
        part = get(client, "audio", "sound", range="bytes=0-3")
        assert part.content == b"RIFF"


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="only Linux has this file")
def test_a_file_that_gives_an_error_when_read_is_not_there() -> None:
    # Its first byte cannot be read: EIO, as of a broken disk.
    files = ItemFiles(None)
    with pytest.raises(UnknownItemError, match="cannot be read"):
        files.thumbnail("/proc/self/mem")
