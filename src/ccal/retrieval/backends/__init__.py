"""Backends: where the items and vectors of an index are kept.

base      Backend: what each of them can do
folder    FolderBackend: a folder with a SQLite database and memory-mapped segments
postgres  PostgresBackend: two tables in PostgreSQL, by pgvector
postgres_loading  the same, filled by many processes
postgres_location  its address, with the name of a table
milvus    MilvusBackend: a collection on a Milvus server
"""

import os
import re
from urllib.parse import urlsplit

from ccal.errors import InputError
from ccal.retrieval.backends.base import Backend, Batches
from ccal.retrieval.items import Binding

__all__ = ["create_backend", "exists", "open_backend", "register_backend"]

Location = str | os.PathLike[str]

_registered: dict[str, type[Backend]] = {}
_BUILT_IN = ("postgresql", "postgres", "milvus", "http", "https")


def register_backend(scheme: str, backend: type[Backend]) -> None:
    """Let locations that start with `scheme://` be indexes of a backend of your own."""
    if scheme in _BUILT_IN or not scheme.isalnum():
        raise InputError(
            f"{scheme!r} cannot be the scheme of a backend; choose letters and digits other than "
            f"{', '.join(_BUILT_IN)}."
        )
    _registered[scheme] = backend


def exists(location: Location) -> bool:
    """Whether there is an index, be it a damaged one; a half-built one does not count."""
    return _backend_of(location).exists(os.fspath(location))


def open_backend(location: Location) -> Backend:
    """The backend of an index that exists."""
    return _backend_of(location).open(os.fspath(location))


def create_backend(
    location: Location, binding: Binding, batches: Batches, *, replace: bool
) -> Backend:
    """A new index with its first items; with `replace` in place of one that is there."""
    backend = _backend_of(location)
    if binding.codes is not None and backend.kind != "folder":
        raise InputError(f"{location} keeps no binary codes; leave codes out, or use a folder.")
    return backend.create(os.fspath(location), binding, batches, replace=replace)


def _check_address(location: Location) -> None:
    """Refuse what is no location at all, and an address with an impossible host or port."""
    try:
        urlsplit(os.fspath(location)).port  # noqa: B018 - computed when it is asked for
    except (TypeError, ValueError) as error:
        shown = re.sub("//.*@", "//", str(location))
        raise InputError(f"{shown!r} is no place for an index: {error}.") from error


def _backend_of(location: Location) -> type[Backend]:
    """The class that a location means; only its own packages are imported."""
    _check_address(location)
    scheme, has_scheme, _ = location.partition("://") if isinstance(location, str) else ("",) * 3
    if not has_scheme:
        from ccal.retrieval.backends.folder.backend import FolderBackend

        return FolderBackend
    if scheme in ("postgresql", "postgres"):
        from ccal.retrieval.backends.postgres_loading import PostgresLoads

        return PostgresLoads
    if scheme in ("milvus", "http", "https"):
        from ccal.retrieval.backends.milvus.backend import MilvusBackend

        return MilvusBackend
    if scheme in _registered:
        return _registered[scheme]
    raise InputError(
        f"{scheme}:// is no place for an index; expected a folder, postgresql://... or milvus://..."
    )
