"""Where tunes come from: files of ABC and MusicXML, and two old collections inside music21."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from os import PathLike, fspath
from pathlib import Path

from ccal.data.music.abc import Tune, split_tunes
from ccal.data.music.musicxml import SUFFIXES, read_musicxml
from ccal.errors import CcalError, InputError

__all__ = ["COLLECTIONS", "collection", "read_tunes"]

# Printed in 1883 and 1903.
COLLECTIONS = {"ryan": "ryansMammoth", "oneill": "oneills1850"}


def read_tunes(path: str | PathLike[str]) -> list[Tune]:
    """The tunes of an ABC or MusicXML file, or of all such files in a folder, in order of name.

    Of MusicXML (.musicxml, .mxl, .xml) it is the first voice of the first part.
    """
    where = Path(fspath(path))
    if where.is_dir():
        known = (".abc", *SUFFIXES)
        files = sorted(file for file in where.rglob("*") if file.suffix.lower() in known)
        if not files:
            raise InputError(f"the folder {str(where)!r} has no .abc or MusicXML files.")
    elif where.is_file():
        files = [where]
    else:
        raise InputError(f"{str(where)!r} is neither a file nor a folder.")
    tunes: list[Tune] = []
    for file in files:
        name = file.name if file == where else file.relative_to(where).as_posix()
        if file.suffix.lower() in SUFFIXES:
            tunes.append(replace(read_musicxml(file), source=name))
        else:
            tunes.extend(split_tunes(_text(file), name))
    if not tunes:
        raise InputError(
            f"{str(where)!r} has no tunes: in ABC notation each begins with a line such as X:1."
        )
    return tunes


def collection(name: str) -> list[Tune]:
    """A public-domain collection that is installed with `ccal[music]`.

    "ryan" is Ryan's Mammoth Collection (1883), 1,059 tunes; "oneill" is O'Neill's Music of
    Ireland (1903), 2,009 tunes.
    """
    if name not in COLLECTIONS:
        raise InputError(f"there is no collection {name!r}; there are {', '.join(COLLECTIONS)}.")
    # Its files are all that is needed: importing the package would take seconds.
    spec = find_spec("music21")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / "corpus" / COLLECTIONS[name]
        if path.is_dir():
            return read_tunes(path)
    raise CcalError(
        f"The collection {name!r} is part of the package music21; "
        "install it with: pip install 'ccal[music]'"
    )


def _text(file: Path) -> str:
    """The file's text; old ones are in Latin-1."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise InputError(f"{str(file)!r} cannot be read ({error}).") from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("latin-1")
