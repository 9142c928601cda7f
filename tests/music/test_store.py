from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ccal.errors import CcalError, InputError
from ccal.music import (
    MusicSettings,
    SheetAudioPairs,
    SheetAudioStore,
    Tune,
    build_store,
    parse_abc,
    render_tune,
    write_preview,
)
from ccal.music.rendering import Worker
from ccal.training.batches import Features
from tests.music.tunes import needs_music, tunes

pytestmark = needs_music

SILENT = Tune("X:9\nK:C\nz8|", "Silence", "invented.abc, X:9")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("music") / "store"
    calls: list[tuple[int, int]] = []
    build_store([*tunes(), SILENT], folder, progress=lambda *call: calls.append(call))
    assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]
    return folder


@pytest.fixture
def copied(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "copy"))


def no_workers(*_: object) -> None:
    raise AssertionError("nothing should be rendered")


def test_tunes_are_stored_as_they_are_rendered(built: Path) -> None:
    store = SheetAudioStore(built)
    assert [tune.name for tune in store.tunes] == ["Up and Down", "The Same, Higher", "Other Steps"]
    assert store.skipped == [("'Silence' (invented.abc, X:9)", "it has no notes.")]
    assert store.groups == [0, 0, 1], "the second tune is the first, transposed"
    assert not list(built.glob("parts"))
    store.verify()
    for number, tune in enumerate(tunes()):
        expected, actual = render_tune(tune.abc), store.tune(number)
        assert np.array_equal(actual.sheet, expected.sheet)
        np.testing.assert_allclose(actual.audio, expected.audio, atol=1e-3)
        assert np.array_equal(actual.onsets, expected.onsets)
        assert len(actual.onsets) == len(parse_abc(tune.abc).attacks())


def test_pairs_are_the_hundred_columns_and_frames_before_an_onset(built: Path) -> None:
    store = SheetAudioStore(built)
    pairs = SheetAudioPairs(store, [2, 0])
    ready_for_training: Features = pairs
    assert len(ready_for_training) > 20
    sheet, audio = pairs.batch(np.arange(len(pairs)))
    assert sheet.shape == (len(pairs), 1, 40, 100)
    assert audio.shape == (len(pairs), 1, 136, 100)
    assert sheet.dtype == audio.dtype == torch.float32
    assert sheet.is_contiguous()
    assert audio.is_contiguous()
    row = 0
    for number in (2, 0):
        tune = store.tune(number)
        for onset in tune.onsets:
            x, frame = int(onset["left"]), int(onset["frame"])
            if x < 100 or frame < 100:
                continue
            ink = 1 - tune.sheet[x - 100 : x].T.astype(np.float32) / 255
            np.testing.assert_allclose(sheet[row, 0], ink, atol=1e-6)
            np.testing.assert_array_equal(audio[row, 0], tune.audio[frame - 100 : frame].T)
            assert pairs.tune[row] == number
            row += 1
    assert row == len(pairs)
    some = pairs.batch([3, 1])
    assert torch.equal(some[0], sheet[[3, 1]])
    assert torch.equal(some[1], audio[[3, 1]])


def test_centred_pairs_have_the_note_in_the_middle(built: Path) -> None:
    store = SheetAudioStore(built)
    pairs = SheetAudioPairs(store, centred=True)
    sheet, audio = pairs.batch(np.arange(len(pairs)))
    assert len(pairs) > len(SheetAudioPairs(store)) // 2
    onset = store.onsets[pairs.onset]
    start = np.array([store.tunes[number].sheet[0] for number in pairs.tune])
    np.testing.assert_array_equal(pairs.column - start + 50, np.rint(onset["centre"]))
    # The head is black in the middle, and the sound begins there.
    assert (sheet[:, 0, :, 49:51].amax(dim=(1, 2)) > 0.7).all()
    loud = audio[:, 0].sum(dim=1)
    assert (loud[:, 51:53].mean(dim=1) > loud[:, 46:48].mean(dim=1)).float().mean() > 0.9


def test_pairs_of_some_tunes(built: Path) -> None:
    store = SheetAudioStore(built)
    pairs = SheetAudioPairs(store, [2, 1, 0])
    assert set(SheetAudioPairs(store, [2]).tune) == {2}
    parts = (SheetAudioPairs(store, [0]), SheetAudioPairs(store, [1, 2]))
    assert sum(map(len, parts)) == len(pairs)
    assert len(SheetAudioPairs(store, [])) == 0
    with pytest.raises(InputError, match="has the tunes 0 to 2"):
        SheetAudioPairs(store, [3])
    with pytest.raises(InputError, match="row numbers"):
        pairs.batch([[1]])


def test_a_finished_store_is_opened_and_a_broken_off_one_goes_on(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = tunes()
    with monkeypatch.context() as patch:
        patch.setattr(Worker, "start", no_workers)
        assert len(build_store([*wanted, SILENT], copied)) == 3
        # Fewer tunes, in another order: all that is needed is there.
        store = build_store(wanted[:0:-1], copied)
        assert [tune.name for tune in store.tunes] == ["Other Steps", "The Same, Higher"]
        assert len(list(copied.glob("*.npy"))) == 3
    started: list[str] = []
    start = Worker.start

    def interrupted(worker: Worker, abc: str, path: Path) -> None:
        started.append(abc)
        if len(started) == 2:
            raise KeyboardInterrupt
        start(worker, abc, path)

    more = [Tune(f"X:{n}\nL:1/4\nK:C\n{n * 'CD'}|", str(n), "x") for n in (1, 2)]
    with monkeypatch.context() as patch:
        patch.setattr(Worker, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            build_store([*wanted[1:], *more], copied, processes=1)
    assert len(SheetAudioStore(copied)) == 2, "the old store is whole until the new one is"
    started.clear()

    def counted(worker: Worker, abc: str, path: Path) -> None:
        started.append(abc)
        start(worker, abc, path)

    monkeypatch.setattr(Worker, "start", counted)
    assert len(build_store([*wanted[1:], *more], copied, processes=1)) == 4
    assert started == [more[1].abc]


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_tunes_are_dropped_only_if_that_is_wanted(copied: Path) -> None:
    first, second, third = tunes()
    before = contents(copied)
    with pytest.raises(InputError, match=r"holds 2 tunes that .* 'Up and Down'.*--replace"):
        build_store([third], copied, replace=False)
    slow = MusicSettings(tempo=90.0)
    with pytest.raises(InputError, match=r"tempo 120\.0, not 90\.0.* its 3 tunes .*--replace"):
        build_store(tunes(), copied, slow, replace=False)
    with pytest.raises(InputError, match="its 3 tunes would be dropped, and holds 1 tune that"):
        build_store([first, second], copied, slow, replace=False)
    manifest = json.loads((copied / "manifest.json").read_text())
    (copied / "manifest.json").write_text(json.dumps(manifest | {"settings_hash": "0"}))
    with pytest.raises(InputError, match="other versions of its packages"):
        build_store([first, second], copied, replace=False)
    (copied / "manifest.json").write_bytes(before["manifest.json"])
    assert contents(copied) == before
    (copied / "mine.npy").write_text("of the user")
    store = build_store([third], copied, replace=True)
    assert [tune.name for tune in store.tunes] == [third.name]
    assert (copied / "mine.npy").exists()


def test_what_loses_no_tune_needs_no_leave(copied: Path) -> None:
    first, second, third = tunes()
    corrected = Tune(first.abc.replace("d5 A", "d4 AA"), first.name, first.source)
    moved = Tune(second.abc, second.name, "elsewhere.abc, X:2")
    new = Tune("X:1\nL:1/4\nK:C\nCDCD|", "New", "new.abc, X:1")
    store = build_store([corrected, moved, third, new], copied, replace=False)
    assert [tune.abc for tune in store.tunes] == [t.abc for t in (corrected, moved, third, new)]


@pytest.mark.parametrize("name", ["thesis.tex", "weights.npy", "parts/flute.xml"])
def test_a_folder_of_something_else_is_kept(name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("years of work")
    with pytest.raises(InputError, match="is not empty and no store: it holds"):
        build_store(tunes(), tmp_path, replace=True)
    assert contents(tmp_path) == {name: b"years of work"}


def test_a_store_without_its_manifest_is_built_again(copied: Path) -> None:
    (copied / "manifest.json").unlink()
    (copied / "library").mkdir()
    (copied / "parts").mkdir()
    assert len(build_store(tunes()[2:], copied, replace=False)) == 1


def test_a_process_that_dies_or_hangs_costs_one_tune(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = Worker.start
    dies, hangs, lives = tunes()

    def doomed(worker: Worker, abc: str, path: Path) -> None:
        start(worker, abc, path)
        assert worker._process is not None
        if abc == dies.abc:
            os.kill(worker._process.pid, signal.SIGKILL)
        elif abc == hangs.abc:
            os.kill(worker._process.pid, signal.SIGSTOP)
            worker._deadline = 0.0

    monkeypatch.setattr(Worker, "start", doomed)
    store = build_store([dies, hangs, lives], tmp_path, processes=1)
    assert [tune.name for tune in store.tunes] == [lives.name]
    assert store.skipped == [
        (dies.title, "the process that rendered it ended (SIGKILL)."),
        (hangs.title, "the process that rendered it did not come back."),
    ]


def test_an_engraver_that_takes_too_long_is_given_up() -> None:
    with pytest.raises(InputError, match=r"no result after 0\.0001 seconds"):
        render_tune(tunes()[0].abc, MusicSettings(timeout=0.0001))


def test_damage_is_named(copied: Path) -> None:
    store = SheetAudioStore(copied)
    sheet = copied / store.manifest["files"]["sheet"]["name"]
    content = sheet.read_bytes()
    sheet.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(InputError, match=r"damaged: the content of sheet-\w+\.npy"):
        SheetAudioStore(copied).verify()
    sheet.write_bytes(content[:-5])
    with pytest.raises(InputError, match=r"damaged: sheet-\w+\.npy has [\d,]+ bytes"):
        SheetAudioStore(copied)
    sheet.unlink()
    with pytest.raises(InputError, match=r"damaged: sheet-\w+\.npy is missing"):
        build_store(tunes(), copied)
    manifest = copied / "manifest.json"
    manifest.write_text(json.dumps(store.manifest | {"format": 99}))
    with pytest.raises(InputError, match="has the format 99"):
        SheetAudioStore(copied)
    manifest.write_text("{")
    with pytest.raises(InputError, match=r"damaged: manifest\.json cannot be read"):
        SheetAudioStore(copied)


def test_what_cannot_be_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="no tunes to render"):
        build_store([], tmp_path)
    with pytest.raises(InputError, match="processes must be a whole number of at least 1"):
        build_store(tunes(), tmp_path, processes=0)
    with pytest.raises(InputError, match="has no finished store; `ccal data build`"):
        SheetAudioStore(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="must be a folder"):
        build_store(tunes(), tmp_path / "file")
    with pytest.raises(InputError, match=r"the sound font '/none\.sf2' is not there"):
        build_store(tunes(), tmp_path / "new", MusicSettings(sound_font="/none.sf2"))
    wrong: list[dict[str, Any]] = [{"space": 0.5}, {"tempo": 5}, {"timeout": 0}, {"program": 128}]
    for settings in wrong:
        with pytest.raises(InputError, match=f"{next(iter(settings))} must be"):
            MusicSettings(**settings)
    parts = tmp_path / "half" / "parts"
    monkeypatch.setattr(Worker, "start", no_workers)
    with pytest.raises(AssertionError):
        build_store(tunes()[:1], tmp_path / "half")
    assert parts.is_dir()


def test_two_builders_do_not_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def second(*_: object) -> None:
        build_store(tunes(), tmp_path)

    monkeypatch.setattr(Worker, "start", second)
    with pytest.raises(CcalError, match="another process is at work"):
        build_store(tunes(), tmp_path)


def test_a_preview_marks_heads_and_onsets(built: Path, tmp_path: Path) -> None:
    from PIL import Image

    pairs = SheetAudioPairs(SheetAudioStore(built))
    write_preview(pairs, tmp_path / "preview.png", tunes=2)
    pixels = np.asarray(Image.open(tmp_path / "preview.png").convert("RGB"))
    red = (pixels == [255, 0, 0]).all(axis=2)
    onsets = pairs.store.tune(0).onsets
    assert np.flatnonzero(red[0]).tolist()[:5] == [int(x) * 3 + 1 for x in onsets["centre"][:5]]
    with pytest.raises(InputError, match="no pairs to show"):
        write_preview(SheetAudioPairs(pairs.store, []), tmp_path / "none.png")
