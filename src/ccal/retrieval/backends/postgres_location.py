"""The location of an index in PostgreSQL: an address with the name of a table."""

import re
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from ccal.errors import InputError

_TABLE = re.compile(r"[a-z_][a-z0-9_]{0,47}")


def parse_location(location: str) -> tuple[str, str, str]:
    """The address for the driver, the table, and the location as it may be shown.

    >>> parse_location("postgresql://me:secret@here/birds?table=photos")
    ('postgresql://me:secret@here/birds', 'photos', 'postgresql://me@here/birds?table=photos')
    """
    parts = urlsplit(location)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    table = options.pop("table", "ccal")
    if not _TABLE.fullmatch(table):
        raise InputError(
            f"table={table} is no name for an index; expected small letters, digits and _."
        )
    uri = urlunsplit(parts._replace(query=urlencode(options)))
    user, at, host = parts.netloc.rpartition("@")
    shown = parts._replace(netloc=user.partition(":")[0] + at + host)
    options.pop("password", None)
    query = urlencode({**options, "table": table}, safe="/")
    return uri, table, urlunsplit(shown._replace(query=query))
