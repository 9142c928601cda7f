"""What a new store may not do to a folder: fill one of other things, or drop tunes unasked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from ccal.data.music.abc import Tune
from ccal.data.music.rendering import MusicSettings
from ccal.data.music.store import ARRAYS, MANIFEST, PARTS, SheetAudioStore
from ccal.errors import InputError

__all__ = ["refuse_loss", "refuse_other_things"]


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
