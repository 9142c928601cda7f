from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ccal.errors import CcalError, InputError
from ccal.files import write_document
from ccal.music import (
    MusicSettings,
    SheetAudioPairs,
    SheetAudioStore,
    Tune,
    build_store,
    parse_abc,
    read_tunes,
    render_tune,
    split_tunes_by_melody,
)
from ccal.music.rendering import Worker
from tests.music.tunes import needs_music, tunes

pytestmark = needs_music

NOTTINGHAM = Path(__file__).parents[2].parent / "shared/data/nottingham"
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
    for number, tune in enumerate(tunes()):
        expected, actual = render_tune(tune.abc), store.tune(number)
        assert np.array_equal(actual.sheet, expected.sheet)
        np.testing.assert_allclose(actual.audio, expected.audio, atol=1e-3)
        assert np.array_equal(actual.onsets, expected.onsets)
        assert len(actual.onsets) == len(parse_abc(tune.abc).attacks())


def test_a_finished_store_is_opened_and_an_interrupted_build_continues(
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
        # As a process leaves it that is killed when the store is finished.
        (copied / "parts").mkdir()
        (copied / "parts" / "0.npz").touch()
        assert len(build_store(wanted[:0:-1], copied)) == 2
        assert not (copied / "parts").exists()
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
    with pytest.raises(InputError, match=r"tempo 120\.0, not 90\.0.* all its tunes .*--replace"):
        build_store(tunes(), copied, slow, replace=False)
    with pytest.raises(InputError, match="all its tunes would be dropped, and holds 1 tune that"):
        build_store([first, second], copied, slow, replace=False)
    manifest = json.loads((copied / "manifest.json").read_text())
    write_document(copied / "manifest.json", manifest | {"settings_hash": "0"})
    with pytest.raises(InputError, match="other versions of packages"):
        build_store([first, second], copied, replace=False)
    (copied / "manifest.json").write_bytes(before["manifest.json"])
    assert contents(copied) == before
    (copied / "mine.npy").write_text("of the user")
    store = build_store([third], copied, replace=True)
    assert [tune.name for tune in store.tunes] == [third.name]
    assert (copied / "mine.npy").exists()


def test_a_store_that_loses_no_tune_is_replaced_without_asking(copied: Path) -> None:
    first, second, third = tunes()
    corrected = Tune(first.abc.replace("d5 A", "d4 AA"), first.name, first.source)
    moved = Tune(second.abc, second.name, "elsewhere.abc, X:2")
    new = Tune("X:1\nL:1/4\nK:C\nCDCD|", "New", "new.abc, X:1")
    store = build_store([corrected, moved, third, new], copied, replace=False)
    assert [tune.abc for tune in store.tunes] == [t.abc for t in (corrected, moved, third, new)]


@pytest.mark.parametrize("name", ["thesis.tex", "weights.npy", "parts/flute.xml"])
def test_a_folder_with_other_files_is_refused(name: str, tmp_path: Path) -> None:
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


def test_bad_arguments_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="no tunes to render"):
        build_store([], tmp_path)
    with pytest.raises(InputError, match="processes must be a whole number of at least 1"):
        build_store(tunes(), tmp_path, processes=0)
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


def test_a_second_builder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def second(*_: object) -> None:
        build_store(tunes(), tmp_path)

    monkeypatch.setattr(Worker, "start", second)
    with pytest.raises(CcalError, match="another process is at work"):
        build_store(tunes(), tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(not NOTTINGHAM.is_dir(), reason=f"{NOTTINGHAM} is not there")
def test_nottingham(tmp_path: Path) -> None:
    written = read_tunes(NOTTINGHAM)
    assert len(written) == 1034
    store = build_store(written, tmp_path)
    assert store.skipped == []
    assert len(store) == 1034
    assert len(store.onsets) == 105_115
    pairs = SheetAudioPairs(store)
    assert len(pairs) > 90_000
    groups = np.array(store.groups)
    assert 800 < len(set(groups.tolist())) < 1034
    assert np.bincount(groups).max() < 30
    split = split_tunes_by_melody(store.groups, valid=50, test=50)
    sheet, audio = SheetAudioPairs(store, split.train[:47]).batch(np.arange(1000))
    assert sheet.min() >= 0
    assert sheet.max() <= 1
    assert 0 < float(audio.mean()) < 1
