"""The library of a store and a model, and the one of the tunes that come with the package."""

import os
from pathlib import Path

from ccal.bundled import abc_hash, held_out, pretrained
from ccal.features import user_cache
from ccal.model import DualEncoder
from ccal.music.abc import Tune
from ccal.music.building import build_store
from ccal.music.library import MANIFEST, OtherTunesError, Progress, TuneLibrary
from ccal.music.store import SheetAudioStore
from ccal.music.tunes import COLLECTIONS, collection
from ccal.retrieval.embedding import fingerprint
from ccal.retrieval.items import DamagedIndexError


def library_of(
    store: SheetAudioStore, model: DualEncoder, *, progress: Progress | None = None
) -> TuneLibrary:
    """The library of a store and a model, kept inside the store's folder.

    It is built if it is missing, damaged, or of the tunes that the store had before. `progress` is
    called with the number of snippets done and their total.
    """
    folder = store.folder / f"library-{fingerprint(model)[:12]}"
    if (folder / MANIFEST).is_file():
        try:
            return TuneLibrary.open(folder, model, store=store)
        except (DamagedIndexError, OtherTunesError):
            # Everything in it can be computed again.
            (folder / MANIFEST).unlink(missing_ok=True)
    return TuneLibrary.build(folder, model, store, progress=progress)


def default_library(
    model: DualEncoder, *, rendering: Progress | None = None, embedding: Progress | None = None
) -> TuneLibrary:
    """Tunes of Ryan's and O'Neill's collections, rendered and embedded once for each user.

    They are the 184 that the model of the package has never seen: a minute or two of work, where
    all 3,068 take half an hour; `ccal data build ryan` and `--library` search among more. They are
    kept in $XDG_CACHE_HOME or ~/.cache, ccal/tunes, which may be deleted at any time. `rendering`
    and `embedding` are called with the number of tunes or snippets done and the total.
    """
    tunes = held_out_tunes()
    store = build_store(tunes, default_folder(), processes=os.cpu_count() or 1, progress=rendering)
    return library_of(store, model, progress=embedding)


def held_out_tunes() -> list[Tune]:
    """The tunes of both collections that the model of the package has never seen."""
    unseen = held_out("folk-tunes")
    tunes = (tune for name in COLLECTIONS for tune in collection(name))
    return [tune for tune in tunes if abc_hash(tune.abc) in unseen]


def default_folder() -> Path:
    """Where the rendered collections are."""
    return user_cache("tunes")


def default_model() -> DualEncoder:
    """The model of sheet music and sound that comes with the package."""
    return pretrained("folk-tunes")
