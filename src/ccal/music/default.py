"""Tunes to search among, from wherever they are: a store, a library, notation, or the package."""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from os import PathLike, fspath
from pathlib import Path

from ccal.bundled import abc_hash, held_out, library_folder, pretrained
from ccal.errors import CcalError, InputError
from ccal.features import user_cache
from ccal.model import DualEncoder
from ccal.music.abc import Tune
from ccal.music.building import build_store
from ccal.music.library import MANIFEST, Progress, TuneLibrary
from ccal.music.store import MANIFEST as STORE
from ccal.music.store import SheetAudioStore
from ccal.music.tunes import COLLECTIONS, collection, holds_notation, read_tunes
from ccal.optional import install_command
from ccal.retrieval.embedding import fingerprint
from ccal.retrieval.items import DamagedIndexError, OtherModelError

Telling = Callable[[str], Progress | None]
"""From what is being done to the function that is told how much of it is done, and the total."""


def open_tunes(
    location: str | PathLike[str] | None,
    model: DualEncoder,
    *,
    add: Sequence[str | PathLike[str]] = (),
    telling: Telling = lambda what: None,
) -> TuneLibrary:
    """The tunes at a location, and at those to `add`, as a library of a model.

    What is missing is built. A location is a store (`ccal data build`), the folder of a library, a
    file of notation or a folder of such files, or None for the tunes that come with the package.
    What is made of notation is kept in the user's cache, and made again for the tunes that have
    changed. `telling` gives the function to report each step to.
    """
    if add:
        every = (location, *add)
        return TuneLibrary.joined([open_tunes(one, model, telling=telling) for one in every])
    if location is None:
        return default_library(model, telling=telling)
    where = Path(fspath(location))
    if (where / MANIFEST).is_file():
        return TuneLibrary.open(where, model)
    if (where / STORE).is_file():
        store = SheetAudioStore(where)
    elif where.is_dir() and not holds_notation(where):
        raise InputError(
            f"the folder {str(where)!r} holds no tunes: expected files of ABC, MusicXML or MIDI, "
            "or a finished store of `ccal data build`."
        )
    else:
        tunes = read_tunes(where, progress=telling("reading tunes"))
        store = _rendered(tunes, book_folder(where), telling("rendering tunes"))
    return library_of(store, model, progress=telling("embedding tunes"))


def is_ready(location: str | PathLike[str] | None, model: DualEncoder) -> bool:
    """Whether `open_tunes` needs to build nothing."""
    folder = library_folder("folk-tunes") if location is None else Path(fspath(location))
    if (folder / STORE).is_file():
        return _library_folder(folder, model).is_dir()
    manifest = folder / MANIFEST
    return manifest.is_file() and json.loads(manifest.read_bytes())["model"] == fingerprint(model)


def _library_folder(store: Path, model: DualEncoder) -> Path:
    return store / f"library-{fingerprint(model)[:12]}"


def library_of(
    store: SheetAudioStore, model: DualEncoder, *, progress: Progress | None = None
) -> TuneLibrary:
    """The library of a store and a model, kept inside the store's folder.

    It is built if it is missing, damaged, or of the tunes that the store had before. `progress` is
    called with the number of snippets done and their total.
    """
    folder = _library_folder(store.folder, model)
    if (folder / MANIFEST).is_file():
        try:
            library = TuneLibrary.open(folder, model)
        except (DamagedIndexError, InputError):
            # Everything in it can be computed again.
            (folder / MANIFEST).unlink(missing_ok=True)
        else:
            if library.store_hash == store.manifest["hash"]:
                return library
    return TuneLibrary.build(folder, model, store, progress=progress)


def default_library(model: DualEncoder, *, telling: Telling = lambda what: None) -> TuneLibrary:
    """Tunes of Ryan's and O'Neill's collections: the 184 that the package's model has never seen.

    For the model of the package their library comes with it. For another model they are rendered
    and embedded once for each user, in $XDG_CACHE_HOME or ~/.cache, ccal/tunes, which may be
    deleted at any time.
    """
    folder = library_folder("folk-tunes")
    if (folder / MANIFEST).is_file():
        try:
            return TuneLibrary.open(folder, model, texts=_text)
        except OtherModelError:
            pass
    store = _rendered(held_out_tunes(), default_folder(), telling("rendering tunes"))
    return library_of(store, model, progress=telling("embedding tunes"))


def _rendered(tunes: list[Tune], folder: Path, progress: Progress | None) -> SheetAudioStore:
    return build_store(tunes, folder, processes=os.cpu_count() or 1, progress=progress)


def held_out_tunes() -> list[Tune]:
    """The tunes of both collections that the model of the package has never seen."""
    unseen = held_out("folk-tunes")
    tunes = (tune for name in COLLECTIONS for tune in collection(name))
    return [tune for tune in tunes if abc_hash(tune.abc) in unseen]


def default_folder() -> Path:
    """Where the tunes of the package are rendered."""
    return user_cache("tunes")


def book_folder(path: Path) -> Path:
    """Where the tunes of a file or folder of notation are rendered."""
    whole = str(path.resolve())
    return (
        user_cache("books")
        / f"{path.resolve().stem}-{hashlib.sha256(whole.encode()).hexdigest()[:12]}"
    )


def default_model() -> DualEncoder:
    """The model of sheet music and sound that comes with the package."""
    return pretrained("folk-tunes")


@lru_cache(maxsize=1)
def _texts() -> dict[str, str]:
    return {abc_hash(tune.abc): tune.abc for tune in held_out_tunes()}


def _text(key: str) -> str:
    """The notation of a tune of the package, which is part of music21."""
    try:
        return _texts()[key]
    except KeyError:
        raise CcalError(
            "the notation of this tune is not in the installed version of music21; install it "
            f"again with: {install_command('music')}"
        ) from None
