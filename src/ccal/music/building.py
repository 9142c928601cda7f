"""From tunes to a store: rendered by several processes, resumed after an interruption."""

import hashlib
import json
import select
import shutil
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict
from os import PathLike, fspath
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

from ccal.bounds import Whole, check
from ccal.errors import InputError
from ccal.files import alone_in
from ccal.music.abc import Tune
from ccal.music.rendering import MusicSettings, RenderedTune, Worker
from ccal.music.store import ARRAYS, MANIFEST, SheetAudioStore, store_files
from ccal.music.tunes import melody_groups

# The folder of single rendered tunes; it is deleted when the store is complete.
_PARTS = "parts"


def build_store(
    tunes: Sequence[Tune],
    folder: str | PathLike[str],
    settings: MusicSettings | None = None,
    *,
    processes: int = 2,
    replace: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> SheetAudioStore:
    """Render tunes into a folder, or open the store that is already there.

    Rendered tunes are kept by the hash of their text and of the settings: an interrupted build
    continues where it stopped, and a store of other tunes in the same folder is replaced without
    rendering again what both have in common. With `replace=False`, `InputError` refuses to replace
    a store that would lose tunes or was rendered with other settings. A folder that holds anything
    else is always refused. A tune that cannot be read or rendered is left out, and `store.skipped`
    says why. `progress` is called with the number of tunes done and their total.
    """
    settings = settings or MusicSettings()
    if not tunes:
        raise InputError("there are no tunes to render.")
    check("processes", processes, Whole(at_least=1))
    where = Path(fspath(folder))
    _refuse_other_files(where)
    look = settings.digest()
    keys = [_hash([look, tune.problem or tune.abc]) for tune in tunes]
    names = [(tune.name, tune.source) for tune in tunes]
    about = {
        "hash": _hash([look, keys, names]),
        "settings_hash": look,
        "settings": asdict(settings),
    }
    by_key = {key: tune for key, tune in zip(keys, tunes, strict=True) if tune.problem is None}
    with alone_in(where):
        old = SheetAudioStore(where) if (where / MANIFEST).exists() else None
        if old is not None and old.manifest["hash"] == about["hash"]:
            if _belongs_to_a_store(where / _PARTS):  # which a process left that was killed last
                shutil.rmtree(where / _PARTS)
            return _with_texts(old, by_key)
        if old is not None and not replace:
            _refuse_loss(old, tunes, settings, look)
        parts = where / _PARTS
        parts.mkdir(exist_ok=True)
        if old is not None:
            for number, tune in enumerate(old.tunes):
                if tune.key in by_key and not (parts / f"{tune.key}.npz").exists():
                    old.tune(number).save(parts / f"{tune.key}.npz")
        failed = {key: t.problem for key, t in zip(keys, tunes, strict=True) if t.problem}
        failed |= _render(by_key, parts, settings, processes, progress)
        _assemble(list(zip(keys, tunes, strict=True)), failed, where, about)
    return SheetAudioStore(where)


def _refuse_other_files(folder: Path) -> None:
    """Refuse a folder that is neither new, nor empty, nor of a store, finished or begun."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"the store must be a folder, and {str(folder)!r} is a file.")
    if not folder.exists() or (folder / MANIFEST).exists():
        return
    strange = sorted(path.name for path in folder.iterdir() if not _belongs_to_a_store(path))
    if strange:
        raise InputError(
            f"{str(folder)!r} is not empty and no store: it holds {strange[0]!r}. Name a new "
            "folder; nothing was written."
        )


def _belongs_to_a_store(path: Path) -> bool:
    """Whether an interrupted build may have left this, or it is a library of the store."""
    if path.name == _PARTS:
        # It is deleted in the end; a user's own folder of that name must not be.
        return path.is_dir() and all(
            part.name.startswith(".") or part.suffix == ".npz" for part in path.iterdir()
        )
    is_array = path.suffix == ".npy" and path.name.startswith(tuple(f"{name}-" for name in ARRAYS))
    is_library = path.is_dir() and path.name.startswith("library")
    return path.name.startswith(".") or is_array or is_library


def _refuse_loss(
    old: SheetAudioStore, tunes: Sequence[Tune], settings: MusicSettings, look: str
) -> None:
    """Refuse to replace a store that has other tunes than these, or was rendered otherwise.

    A tune of the same name and source is the same tune, even if its text has changed, unless it
    cannot be read any more. `look` is the digest of the settings.
    """
    good = [tune for tune in tunes if tune.problem is None]
    texts, origins = {tune.abc for tune in good}, {(tune.name, tune.source) for tune in good}
    lost = [t for t in old.tunes if t.abc not in texts and (t.name, t.source) not in origins]
    problems = []
    if old.manifest.get("settings_hash") != look:
        changed = [
            f"{name} {old.settings.get(name)}, not {value}"
            for name, value in asdict(settings).items()
            if name != "timeout" and old.settings.get(name) != value
        ]
        # The digest also covers packages and fonts.
        what = f"settings ({'; '.join(changed)})" if changed else "versions of packages or fonts"
        problems.append(f"was rendered with other {what}, so that all its tunes would be dropped")
    if lost:
        count = f"{len(lost):,} tune{'s' if len(lost) > 1 else ''}"
        problems.append(
            f"holds {count} that are not among the {len(tunes):,} given and would be dropped (the "
            f"first: {lost[0].name!r}, {lost[0].source})"
        )
    if problems:
        raise InputError(
            f"the store {str(old.folder)!r} {', and '.join(problems)}. Nothing was changed. Name "
            "another folder, or let the new tunes take the place of the old with --replace (in "
            "Python, replace=True)."
        )


def _hash(parts: list[Any]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _with_texts(old: SheetAudioStore, tunes: dict[str, Tune]) -> SheetAudioStore:
    """The same store; one of an earlier version gets the texts of its tunes, by key."""
    if all(tune.abc is not None for tune in old.tunes):
        return old
    entries = [{**entry, "abc": tunes[entry["key"]].abc} for entry in old.manifest["tunes"]]
    store_files(old.folder).finish({**old.manifest, "tunes": entries})
    return SheetAudioStore(old.folder)


def _render(
    wanted: dict[str, Tune],
    parts: Path,
    settings: MusicSettings,
    processes: int,
    progress: Callable[[int, int], None] | None,
) -> dict[str, str]:
    """Render the tunes that have no file yet; returns why, by key, some could not be."""
    failed: dict[str, str] = {}
    waiting = deque(key for key in wanted if not (parts / f"{key}.npz").exists())
    done = len(wanted) - len(waiting)
    workers = [Worker(settings) for _ in range(min(processes, len(waiting)))]
    busy: dict[Worker, str] = {}
    try:
        while waiting or busy:
            for worker in workers:
                if waiting and worker not in busy:
                    busy[worker] = key = waiting.popleft()
                    worker.start(wanted[key].abc, parts / f"{key}.npz")
            answered = select.select(list(busy), [], [], 1.0)[0]
            for worker in answered or [worker for worker in busy if worker.late]:
                key, problem = busy.pop(worker), worker.take()
                if problem is not None:
                    failed[key] = problem
                done += 1
                if progress is not None:
                    progress(done, len(wanted))
    finally:
        for worker in workers:
            worker.stop()
    return failed


def _assemble(
    tunes: list[tuple[str, Tune]], failed: dict[str, str], where: Path, about: dict[str, Any]
) -> None:
    """Join the rendered tunes (by key) into the arrays of a store, and delete their own files."""
    good = [(key, tune) for key, tune in tunes if key not in failed]
    skipped = [(tune.title, failed[key]) for key, tune in tunes if key in failed]
    if not good:
        raise InputError(
            f"none of {len(tunes)} tunes could be rendered; the first, {skipped[0][0]}: "
            f"{skipped[0][1]}"
        )
    # Read once for each array, as all tunes together may not fit into memory.
    paths = [where / _PARTS / f"{key}.npz" for key, _ in good]
    sizes: list[dict[str, int]] = []
    melodies = []
    for part in map(_part, paths):
        sizes.append({name: len(getattr(part, name)) for name in ARRAYS})
        melodies.append((part.onsets["pitch"], part.onsets["tick"]))
    files, entries = store_files(where), {}
    for name, (dtype, shape) in ARRAYS.items():
        rows = sum(size[name] for size in sizes)
        arrays = (getattr(part, name) for part in map(_part, paths))
        entries[name] = files.write_array(name, dtype, (rows, *shape), arrays)
    described = [
        {"name": tune.name, "source": tune.source, "abc": tune.abc, "key": key, "group": group}
        | size
        for (key, tune), group, size in zip(good, melody_groups(melodies), sizes, strict=True)
    ]
    files.finish(about | {"files": entries, "skipped": skipped, "tunes": described})
    shutil.rmtree(where / _PARTS)


def _part(path: Path) -> RenderedTune:
    try:
        return RenderedTune.load(path)
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        raise InputError(
            f"the half-built store has a damaged file, {str(path)!r} ({error}); delete the file "
            "and build again."
        ) from error
