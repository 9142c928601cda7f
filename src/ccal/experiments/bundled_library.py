"""`python -m ccal.experiments.bundled_library`: the library that comes with the package.

It holds the tunes that the bundled model has never seen, embedded by that model, so that the first
`ccal identify` answers at once. Run it whenever the model or its held-out tunes change.
"""

import os
import shutil

from ccal.bundled import abc_hash, library_folder
from ccal.files import read_document, write_document
from ccal.music.building import build_store
from ccal.music.default import default_folder, default_model, held_out_tunes
from ccal.music.library import MANIFEST, TuneLibrary
from ccal.progress import counting


def main() -> None:
    """Render the tunes in the user's cache, embed them, and write their library to the package."""
    tunes, folder = held_out_tunes(), library_folder("folk-tunes")
    workers, progress = os.cpu_count() or 1, counting("rendering tunes")
    store = build_store(tunes, default_folder(), processes=workers, progress=progress)
    shutil.rmtree(folder, ignore_errors=True)
    library = TuneLibrary.build(
        folder, default_model(), store, progress=counting("embedding snippets")
    )
    (folder / ".lock").unlink(missing_ok=True)
    # The notation is in the package music21, where its hash finds it.
    about = read_document(folder / MANIFEST)
    tuned = [{**tune, "key": abc_hash(tune["abc"]), "abc": None} for tune in about["tunes"]]
    write_document(folder / MANIFEST, {**about, "tunes": tuned})
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{folder}: {library!r}, {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
