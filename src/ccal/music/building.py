"""From tunes to a store: rendered by several processes, resumed where it was broken off.

What a new store may not do to a folder: fill one of other things, or drop tunes unasked.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from os import PathLike, fspath
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from ccal.errors import CcalError, InputError
from ccal.files import alone_in, write_atomically
from ccal.music.abc import Tune
from ccal.music.rendering import MusicSettings, RenderedTune
from ccal.music.store import ARRAYS, FORMAT, MANIFEST, PARTS, SheetAudioStore, describe
from ccal.music.tunes import melody_groups
from ccal.music.worker import Worker, read_part, wait_for, write_part

__all__ = ["build_store", "refuse_loss", "refuse_other_things"]


def refuse_other_things(folder: Path) -> None:
    """Refuse a folder that is neither new, nor empty, nor of a store, finished or begun."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"the store must be a folder, and {str(folder)!r} is a file.")
    if not folder.exists() or (folder / MANIFEST).exists():
        return
    strange = sorted(path.name for path in folder.iterdir() if not _of_a_store(path))
    if strange:
        raise InputError(
            f"{str(folder)!r} is not empty and no store: it holds {strange[0]!r}. Name a new "
            "folder; nothing was written."
        )


def _of_a_store(path: Path) -> bool:
    """Whether a building may have left this, or a library of the store."""
    if path.name == PARTS:
        # They are deleted in the end; somebody's own folder of that name must not be.
        return path.is_dir() and all(
            part.name.startswith(".") or part.suffix == ".npz" for part in path.iterdir()
        )
    arrays = tuple(f"{name}-" for name in ARRAYS)
    is_array = path.suffix == ".npy" and path.name.startswith(arrays)
    is_library = path.is_dir() and path.name.startswith("library")
    return path.name.startswith(".") or is_array or is_library


def refuse_loss(
    old: SheetAudioStore, tunes: Sequence[Tune], settings: MusicSettings, look: str
) -> None:
    """Refuse to replace a store that has other tunes than these, or was rendered otherwise.

    A tune of the same name from the same place is the same tune, though it be written anew. `look`
    is the digest of the settings.
    """
    texts, places = {tune.abc for tune in tunes}, {(tune.name, tune.source) for tune in tunes}
    lost = [t for t in old.tunes if t.abc not in texts and (t.name, t.source) not in places]
    problems = []
    if old.manifest.get("settings_hash") != look:
        problems.append(
            f"was rendered with other {_differences(old, settings)}, so that all of its "
            f"{_count(len(old))} would be dropped"
        )
    if lost:
        first = f"{lost[0].name!r} ({lost[0].source})"
        problems.append(
            f"holds {_count(len(lost))} that are not among the {len(tunes):,} given and would be "
            f"dropped (the first: {first})"
        )
    if problems:
        raise InputError(
            f"the store {str(old.folder)!r} {', and '.join(problems)}. Nothing was changed. Name "
            "another folder, or let the new tunes take the place of the old with --replace (in "
            "Python, replace=True)."
        )


def _differences(old: SheetAudioStore, settings: MusicSettings) -> str:
    """The settings that differ, with both values.

    The engraver's version is part of the digest, but no setting.
    """
    now = {name: value for name, value in asdict(settings).items() if name != "timeout"}
    changed = [
        f"{name} {old.settings.get(name)}, not {value}"
        for name, value in now.items()
        if old.settings.get(name) != value
    ]
    return f"settings ({'; '.join(changed)})" if changed else "versions of its packages or fonts"


def _count(tunes: int) -> str:
    """
    >>> _count(1), _count(1234)
    ('1 tune', '1,234 tunes')
    """
    return f"{tunes:,} tune{'' if tunes == 1 else 's'}"


@dataclass
class _Outcome:
    """Reasons of the tunes that failed, by key, and the seconds of each stage in all."""

    failed: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


def build_store(
    tunes: Sequence[Tune],
    folder: str | PathLike[str],
    settings: MusicSettings | None = None,
    *,
    processes: int = 2,
    replace: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> SheetAudioStore:
    """Render tunes into a folder, or open what is already there.

    Each tune is kept by its content and the settings: broken-off work goes on where it was, and a
    store of other tunes in the same folder is replaced, but what both have in common is not
    rendered again. With `replace=False`, a store that would lose tunes, or was rendered with other
    settings, is refused. A folder of anything else always is. A tune that cannot be rendered is
    left out, and `store.skipped` says why. `progress` is called with the number of tunes done and
    their total.
    """
    settings = settings or MusicSettings()
    if not tunes:
        raise InputError("there are no tunes to render.")
    if processes < 1:
        raise InputError(f"processes must be 1 or more, got {processes}.")
    where = Path(fspath(folder))
    refuse_other_things(where)
    look = settings.digest()
    keys = [_hash([look, tune.abc]) for tune in tunes]
    names = [(tune.name, tune.source) for tune in tunes]
    about = {
        "hash": _hash([look, keys, names]),
        "settings_hash": look,
        "sources_hash": _hash([tune.abc for tune in tunes]),
        "settings": asdict(settings),
    }
    where.mkdir(parents=True, exist_ok=True)
    with alone_in(where):
        old = SheetAudioStore(where) if (where / MANIFEST).exists() else None
        if old is not None and old.manifest["hash"] == about["hash"]:
            return _with_texts(old, {key: tune.abc for key, tune in zip(keys, tunes, strict=True)})
        if old is not None and not replace:
            refuse_loss(old, tunes, settings, look)
        parts = where / PARTS
        parts.mkdir(exist_ok=True)
        if old is not None:
            _keep(old, set(keys), parts)
        outcome = _render(dict(zip(keys, tunes, strict=True)), parts, settings, processes, progress)
        _write(tunes, keys, where, outcome, about)
    return SheetAudioStore(where)


def _hash(parts: list[Any]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _with_texts(old: SheetAudioStore, texts: dict[str, str]) -> SheetAudioStore:
    """The same store; one of an earlier version learns how its tunes, by key, are written."""
    if all(tune.abc is not None for tune in old.tunes):
        return old
    entries = [{**entry, "abc": texts[entry["key"]]} for entry in old.manifest["tunes"]]
    _write_manifest(old.folder, {**old.manifest, "tunes": entries})
    return SheetAudioStore(old.folder)


def _write_manifest(where: Path, manifest: dict[str, Any]) -> None:
    write_atomically(where / MANIFEST, json.dumps(manifest, indent=1).encode())


def _keep(old: SheetAudioStore, keys: set[str], parts: Path) -> None:
    """Take the tunes of an older store that are wanted again."""
    for number, tune in enumerate(old.tunes):
        if tune.key in keys and not (parts / f"{tune.key}.npz").exists():
            write_part(parts / f"{tune.key}.npz", old.tune(number))


def _render(
    wanted: dict[str, Tune],
    parts: Path,
    settings: MusicSettings,
    processes: int,
    progress: Callable[[int, int], None] | None,
) -> _Outcome:
    """Make the files of the tunes that have none yet."""
    outcome = _Outcome()
    waiting = deque(key for key in wanted if not (parts / f"{key}.npz").exists())
    done = len(wanted) - len(waiting)
    busy: dict[Worker, str] = {}
    idle = [Worker(settings) for _ in range(min(processes, len(waiting)))]
    try:
        while waiting or busy:
            while waiting and idle:
                worker, key = idle.pop(), waiting.popleft()
                busy[worker] = key
                worker.start(wanted[key].abc, parts / f"{key}.npz")
            for worker, answer in _answers(list(busy)):
                _note(outcome, busy.pop(worker), answer)
                idle.append(worker)
                done += 1
                if progress is not None:
                    progress(done, len(wanted))
    finally:
        for worker in (*idle, *busy):
            worker.stop()
    return outcome


def _answers(busy: list[Worker]) -> list[tuple[Worker, dict[str, Any]]]:
    """Workers with what they say, once there are any; one that is late says nothing any more."""
    while True:
        answers = [(worker, worker.take()) for worker in wait_for(busy, 1.0)]
        late = [worker for worker in busy if worker.late] if not answers else []
        for worker in late:
            worker.stop()
            answers.append((worker, {"error": "the process that rendered it did not come back."}))
        if answers:
            return answers


def _note(outcome: _Outcome, key: str, answer: dict[str, Any]) -> None:
    if "fatal" in answer:
        raise CcalError(answer["fatal"])
    if "error" in answer:
        outcome.failed[key] = str(answer["error"])
    for stage, seconds in answer.get("seconds", {}).items():
        outcome.seconds[stage] = outcome.seconds.get(stage, 0.0) + float(seconds)


def _write(
    tunes: Sequence[Tune],
    keys: list[str],
    where: Path,
    outcome: _Outcome,
    about: dict[str, Any],
) -> None:
    """Put the parts together; the manifest last, then remove what is no longer needed."""
    good = [(tune, key) for tune, key in zip(tunes, keys, strict=True) if key not in outcome.failed]
    skipped = [
        (tune.title, outcome.failed[key])
        for tune, key in zip(tunes, keys, strict=True)
        if key in outcome.failed
    ]
    if not good:
        raise InputError(
            f"none of {len(tunes)} tunes could be rendered; the first, {skipped[0][0]}: "
            f"{skipped[0][1]}"
        )
    sizes: list[dict[str, int]] = []
    melodies = []

    def parts() -> Iterator[RenderedTune]:
        for _, key in good:
            yield _part(where / PARTS / f"{key}.npz")

    for part in parts():
        sizes.append({name: len(getattr(part, name)) for name in ARRAYS})
        melodies.append((part.onsets["pitch"].copy(), part.onsets["tick"].copy()))
    files = {}
    for name in ARRAYS:
        rows = sum(size[name] for size in sizes)
        path = where / f"{name}-{about['hash'][:12]}.npy"
        _write_array(path, name, rows, (getattr(part, name) for part in parts()))
        files[name] = describe(path)
    entries = [
        {"name": tune.name, "source": tune.source, "abc": tune.abc, "key": key, "group": group}
        | size
        for (tune, key), group, size in zip(good, melody_groups(melodies), sizes, strict=True)
    ]
    manifest = {"format": FORMAT, **about, "seconds": outcome.seconds, "files": files}
    manifest |= {"skipped": skipped, "tunes": entries}
    _write_manifest(where, manifest)
    shutil.rmtree(where / PARTS)
    for name in ARRAYS:
        for path in where.glob(f"{name}-*.npy"):
            if path.name != files[name]["name"]:
                with suppress(OSError):
                    path.unlink()


def _part(path: Path) -> RenderedTune:
    try:
        return read_part(path)
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        raise InputError(
            f"the half-built store has a damaged file, {str(path)!r} ({error}); delete the file "
            "and build again."
        ) from error


def _write_array(path: Path, name: str, rows: int, pieces: Iterable[np.ndarray[Any, Any]]) -> None:
    dtype, rest = ARRAYS[name]
    array = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=(rows, *rest))
    row = 0
    for piece in pieces:
        array[row : row + len(piece)] = piece
        row += len(piece)
    array.flush()
