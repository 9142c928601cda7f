"""Where a Milvus server is, and the name of an index there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from ccal.errors import InputError

__all__ = ["Address"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_OPTIONS = ("database", "shards", "takeover")


@dataclass(frozen=True)
class Address:
    """`milvus://user:password@host:port/NAME`, the same by http, or by https for TLS.

    Options follow a question mark: `database`; `shards`, how many logs take a new index's writes
    at a time; `takeover=yes`, which ends a writer that is gone but on another machine.
    """

    uri: str
    token: str
    name: str
    shown: str
    database: str = "default"
    shards: int = 1
    takeover: bool = False

    @classmethod
    def parse(cls, location: str) -> Address:
        """Read a location.

        >>> Address.parse("milvus://me:secret@here:19530/birds").shown
        'milvus://me@here:19530/birds'
        """
        parts = urlsplit(location)
        user, at, host = parts.netloc.rpartition("@")
        shown = urlunsplit(parts._replace(netloc=user.partition(":")[0] + at + host))
        name = parts.path.strip("/")
        if not host or not _NAME.fullmatch(name):
            raise InputError(
                f"{shown} is no place for an index; expected milvus://host:19530/NAME, and in NAME "
                "letters, digits and _."
            )
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        shards, takeover = options.get("shards", "1"), options.get("takeover", "no")
        if (
            set(options) - set(_OPTIONS)
            or not re.fullmatch(r"[1-9]\d?", shards)
            or takeover not in ("yes", "no")
        ):
            raise InputError(
                f"{shown}: expected options such as database=NAME, shards=2 (1 to 99) and "
                f"takeover=yes, got {urlencode(options)}."
            )
        scheme = "https" if parts.scheme == "https" else "http"
        return cls(
            urlunsplit((scheme, host, "", "", "")),
            unquote(user),
            name,
            shown,
            options.get("database", "default"),
            int(shards),
            takeover == "yes",
        )
