from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ccal.errors import InputError
from ccal.files import write_document
from ccal.music import SheetAudioStore, build_store
from tests.music.tunes import tunes


def test_damage_is_named(store: SheetAudioStore, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(store.folder, tmp_path / "copy"))
    sheet = copied / store.manifest["files"]["sheet"]["name"]
    content = sheet.read_bytes()
    sheet.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(InputError, match=r"damaged: the content of sheet-\w+\.npy"):
        SheetAudioStore(copied)
    sheet.write_bytes(content[:-5])
    with pytest.raises(InputError, match=r"damaged: sheet-\w+\.npy has [\d,]+ bytes"):
        SheetAudioStore(copied)
    sheet.unlink()
    with pytest.raises(InputError, match=r"damaged: sheet-\w+\.npy is missing"):
        build_store(tunes(), copied)
    manifest = copied / "manifest.json"
    write_document(manifest, store.manifest | {"format": 99})
    with pytest.raises(InputError, match="has the format 99"):
        SheetAudioStore(copied)
    manifest.write_text("{")
    with pytest.raises(InputError, match=r"damaged: manifest\.json cannot be read"):
        SheetAudioStore(copied)


def test_a_folder_without_a_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no finished store; `ccal data build`"):
        SheetAudioStore(tmp_path)
