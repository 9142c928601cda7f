from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import ccal
from ccal import DualEncoder
from ccal.encoders import DenseTower
from ccal.errors import InputError
from ccal.files import read_document, write_document
from ccal.music import SheetAudioStore, TuneLibrary, build_store, parse_abc, split_tunes, synthesise
from ccal.music.default import library_of
from ccal.music.embedding import positions_of
from ccal.retrieval import DamagedIndexError, OtherModelError
from tests.music.conftest import random_abc, small_model

soundfile = pytest.importorskip("soundfile")
Image = pytest.importorskip("PIL.Image")

RATE = 44100


def sound(store: SheetAudioStore, tune: int, *, tempo: float = 120.0) -> np.ndarray:
    abc = store.tunes[tune].abc
    assert abc is not None
    return synthesise(parse_abc(abc), tempo=tempo)


def test_recordings_find_their_tune_and_the_position_in_it(
    library: TuneLibrary, store: SheetAudioStore, tmp_path: Path
) -> None:
    for tune in range(len(store)):
        samples = sound(store, tune)[6 * RATE : 16 * RATE]
        path = tmp_path / f"{tune}.wav"
        soundfile.write(path, np.stack([samples, samples], axis=1), RATE)
        best, *others = library.identify(path, k=3)
        assert best.tune == tune
        assert best.name == library.names[tune]
        assert best.score > max(other.score for other in others)
        assert best.seconds == pytest.approx((6, 16), abs=2.5)
        query, column, second = np.array(best.path).T
        assert (np.diff(query) > 0).all()
        assert (np.diff(column) >= 0).all()
        assert (np.diff(second) >= 0).all()
        assert best.columns[0] <= column[0] <= column[-1] <= best.columns[1]
        # A model that has learned for seconds is right to less than one.
        assert np.median(np.abs(second - query - 6)) < 0.8


def test_faster_slower_softer_and_shorter_recordings(
    library: TuneLibrary, store: SheetAudioStore
) -> None:
    for tune, tempo in ((0, 132.0), (1, 109.0)):
        samples = sound(store, tune, tempo=tempo)[4 * RATE : 14 * RATE]
        (best,) = library.identify((0.05 * samples, RATE), k=1)
        assert best.tune == tune
        assert best.seconds[0] == pytest.approx(4 * tempo / 120, abs=1.5)
    silence = np.zeros(RATE, dtype=np.float32)
    played = np.concatenate([silence, sound(store, 2)[5 * RATE : 11 * RATE], silence])
    assert library.identify((played, RATE))[0].tune == 2
    for seconds in (0.2, 1.0, 3.0):
        found = library.identify((played[RATE : RATE + round(seconds * RATE)], RATE))
        assert len(found) == len(store)
        assert all(match.path for match in found)


def test_a_tune_that_is_played_twice_is_laid_along_it_twice(
    library: TuneLibrary, store: SheetAudioStore
) -> None:
    once = sound(store, 3)
    best = library.identify((np.concatenate([once, once]), RATE), k=1)[0]
    assert best.tune == 3
    assert best.score > 0.3


def test_pictures_find_their_tune_and_the_position_in_it(
    library: TuneLibrary, store: SheetAudioStore, tmp_path: Path
) -> None:
    for tune in range(len(store)):
        path = tmp_path / f"{tune}.png"
        path.write_bytes(library.staff_png(tune, (150, 550)))
        best = library.identify_sheet(path, k=2)[0]
        assert best.tune == tune
        assert best.columns == pytest.approx((150, 550), abs=60)
        query, column, _ = np.array(best.path).T
        # The line that was found has the size of the staff line.
        assert np.median(np.abs(column - query - 150)) < 25
    pixels = store.tune(1).sheet[150:550].T
    assert library.identify_sheet(np.ascontiguousarray(pixels))[0].tune == 1


def test_matches_can_be_seen_and_heard(library: TuneLibrary, store: SheetAudioStore) -> None:
    picture = Image.open(io.BytesIO(library.staff_png(0, mark=(100, 200))))
    assert picture.size == (3 * len(store.tune(0).sheet), 120)
    heard, rate = soundfile.read(io.BytesIO(library.wav(0, (2.0, 5.0))))
    assert rate == RATE
    assert len(heard) == 3 * RATE
    assert len(soundfile.read(io.BytesIO(library.wav(0)))[0]) == len(sound(store, 0))
    wanted = sound(store, 0)[2 * RATE : 5 * RATE]
    assert np.corrcoef(heard, wanted)[0, 1] > 0.999
    for wrong in (-1, len(store)):
        with pytest.raises(InputError, match="has the tunes 0 to"):
            library.wav(wrong)
        with pytest.raises(InputError, match="has the tunes 0 to"):
            library.staff_png(wrong)
    with pytest.raises(InputError, match=r"from\.\.to"):
        library.wav(0, (3.0, 2.0))


def test_snippets_are_found_by_their_own_vectors(library: TuneLibrary) -> None:
    vectors = np.array(library.vectors["sheet"][[3, 150]])
    answers = library.search_snippets("sheet", vectors, k=4)
    for row, snippets in zip((3, 150), answers, strict=True):
        position = library.positions[row]
        assert len(snippets) == 4
        assert (snippets[0].tune, snippets[0].column) == (position["tune"], position["column"])
        assert snippets[0].second == pytest.approx(position["frame"] / 31.25)
        assert snippets[0].score == pytest.approx(1, abs=1e-6)
        scores = [snippet.score for snippet in snippets]
        assert scores == sorted(scores, reverse=True)
    with pytest.raises(InputError, match="modality must be one of 'sheet', 'audio'"):
        library.search_snippets("text", vectors)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="k must be"):
        library.search_snippets("audio", vectors, k=0)
    with pytest.raises(InputError, match=r"must have shape \(n, 16\)"):
        library.search_snippets("audio", vectors[:, :3])


def test_positions_are_eighths_of_the_score(store: SheetAudioStore) -> None:
    positions = positions_of(store)
    onsets = store.tune(1).onsets
    own = positions[positions["tune"] == 1]
    on_grid = onsets[(onsets["tick"] - onsets["tick"][0]) % 480 == 0]
    assert len(on_grid) > 20
    for onset in on_grid:
        row = own[(onset["tick"] - onsets["tick"][0]) // 480]
        assert row["column"] == pytest.approx(onset["centre"])
        assert row["frame"] == pytest.approx(onset["frame"])


def test_a_saved_library_is_the_same(
    saved: Path, library: TuneLibrary, model: DualEncoder, store: SheetAudioStore, tmp_path: Path
) -> None:
    model.save(tmp_path / "model")
    opened = TuneLibrary.open(saved, ccal.load(tmp_path / "model"))
    samples = sound(store, 0)[: 5 * RATE]
    ours, theirs = library.identify((samples, RATE)), opened.identify((samples, RATE))
    assert [match.as_dict() for match in ours] == [match.as_dict() for match in theirs]
    assert len(opened) == len(store)
    assert "4 tunes" in repr(opened)


def test_another_model_or_other_tunes_are_refused(
    saved: Path, library: TuneLibrary, model: DualEncoder, store: SheetAudioStore
) -> None:
    with pytest.raises(OtherModelError, match="made by another model"):
        TuneLibrary.open(library.folder, small_model(1))
    tower = DenseTower(3, 2)
    wrong = DualEncoder(dim=2, projection="none", image=tower, text=DenseTower(3, 2))
    with pytest.raises(InputError, match="joins image and text"):
        TuneLibrary.build(saved, wrong, store)


def test_damage_is_named(saved: Path, model: DualEncoder, store: SheetAudioStore) -> None:
    (path,) = saved.glob("audio-*.npy")
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(DamagedIndexError, match=r"the content of audio-\w+\.npy"):
        TuneLibrary.open(saved, model)
    path.write_bytes(content[:-5])
    with pytest.raises(DamagedIndexError, match=r"audio-\w+\.npy has [\d,]+ bytes"):
        TuneLibrary.open(saved, model)
    path.unlink()
    with pytest.raises(DamagedIndexError, match=r"audio-\w+\.npy is missing"):
        TuneLibrary.open(saved, model)
    manifest = saved / "library.json"
    about = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(about | {"level": 2 * about["level"]}))
    with pytest.raises(DamagedIndexError, match=r"the content of library\.json has changed"):
        TuneLibrary.open(saved, model)
    write_document(manifest, about | {"format": 99})
    with pytest.raises(InputError, match="has the format 99"):
        TuneLibrary.open(saved, model)
    manifest.write_text("{")
    with pytest.raises(DamagedIndexError, match=r"library\.json cannot be read"):
        TuneLibrary.open(saved, model)
    manifest.unlink()
    with pytest.raises(InputError, match="no finished library"):
        TuneLibrary.open(saved, model)
    (saved / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        TuneLibrary.build(saved / "file", model, store)


def test_an_interrupted_build_leaves_the_old_library(
    saved: Path, model: DualEncoder, store: SheetAudioStore
) -> None:
    before = {path.name: path.read_bytes() for path in saved.glob("[!.]*.*")}
    calls = []

    def stop(done: int, total: int) -> None:
        calls.append((done, total))
        if done > total / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        TuneLibrary.build(saved, model, store, progress=stop)
    assert calls[-1][0] > calls[0][0]
    after = {path.name: path.read_bytes() for path in saved.glob("[!.]*.*")}
    assert {name: after[name] for name in before} == before
    TuneLibrary.open(saved, model)


def test_the_library_of_a_store_is_built_once_and_again_when_damaged(
    store: SheetAudioStore, model: DualEncoder
) -> None:
    calls: list[tuple[int, int]] = []
    first = library_of(store, model, progress=lambda *call: calls.append(call))
    assert calls[-1][0] == calls[-1][1] == 2 * len(first.positions)
    assert first.folder.parent == store.folder
    calls.clear()
    library_of(store, model, progress=lambda *call: calls.append(call))
    assert not calls
    next(first.folder.glob("sheet-*.npy")).unlink()
    library_of(store, model, progress=lambda *call: calls.append(call))
    assert calls
    TuneLibrary.open(first.folder, model)


def test_the_library_of_a_store_that_has_changed_is_built_again(
    store: SheetAudioStore, model: DualEncoder, tmp_path: Path
) -> None:
    written = split_tunes("".join(map(random_abc, range(1, 4))), "random.abc")
    copy = Path(shutil.copytree(store.folder, tmp_path / "store"))
    before = library_of(build_store(written[:2], copy), model)
    after = library_of(build_store(written[1:], copy), model)
    assert after.folder == before.folder
    assert after.names == ["Dance 2", "Dance 3"]
    samples = sound(SheetAudioStore(copy), 1)[4 * RATE : 12 * RATE]
    assert after.identify((samples, RATE), k=1)[0].name == "Dance 3"
    assert len(list(after.folder.glob("sheet-*.npy"))) == 1


def test_k_is_checked_and_stores_without_texts_say_so(
    library: TuneLibrary, model: DualEncoder, store: SheetAudioStore, tmp_path: Path
) -> None:
    samples = sound(store, 0)[: 4 * RATE]
    assert len(library.identify((samples, RATE), k=2)) == 2
    with pytest.raises(InputError, match="k must be a whole number of at least 1"):
        library.identify((samples, RATE), k=0)
    about = read_document(library.folder / "library.json")
    for tune in about["tunes"]:
        tune["abc"] = None
    shutil.copytree(library.folder, tmp_path / "library")
    write_document(tmp_path / "library" / "library.json", about)
    old = TuneLibrary.open(tmp_path / "library", model)
    with pytest.raises(InputError, match="an earlier version"):
        old.wav(0)


def test_embeddings_are_those_of_the_model(
    library: TuneLibrary, model: DualEncoder, store: SheetAudioStore
) -> None:
    position = library.positions[100]
    tune = store.tune(int(position["tune"]))
    column, frame = round(float(position["column"])), round(float(position["frame"]))
    sheet = torch.from_numpy(1 - tune.sheet[column - 50 : column + 50].T / 255)[None, None].float()
    audio = torch.from_numpy(tune.audio[frame - 50 : frame + 50].T.astype(np.float32))[None, None]
    for name, snippet in (("sheet", sheet), ("audio", audio)):
        wanted = torch.nn.functional.normalize(model.encode(name, snippet))[0].numpy()
        np.testing.assert_allclose(library.vectors[name][100], wanted, atol=1e-3)
