"""The tables of a folder's database, and the checksums of their rows."""

import zlib

SCHEMA = (
    "CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE items (row INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, "
    "modality TEXT NOT NULL, metadata TEXT NOT NULL, file TEXT, crc INTEGER NOT NULL)",
    "CREATE TABLE vectors (row INTEGER PRIMARY KEY, vector BLOB NOT NULL, crc INTEGER NOT NULL)",
    "CREATE TABLE segments (name TEXT PRIMARY KEY, modality TEXT NOT NULL, first INTEGER NOT NULL, "
    "last INTEGER NOT NULL, count INTEGER NOT NULL, approximate INTEGER)",
    "CREATE TABLE counts (modality TEXT PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE removed (row INTEGER PRIMARY KEY, modality TEXT NOT NULL)",
    "CREATE TABLE described (row INTEGER PRIMARY KEY, modality TEXT NOT NULL)",
    # A trigger, so that every change of an item is listed.
    "CREATE TRIGGER describe AFTER UPDATE OF id, metadata, file ON items "
    "WHEN new.row <= (SELECT CAST(value AS INTEGER) FROM about WHERE key = 'sealed') "
    "BEGIN INSERT OR IGNORE INTO described VALUES (new.row, new.modality); END",
)
# The content of the small tables, which one checksum covers.
STATE = (
    "SELECT key, value FROM about WHERE key != 'checksum' ORDER BY key",
    "SELECT name, seq FROM sqlite_sequence",
    "SELECT * FROM segments ORDER BY name",
    "SELECT * FROM counts ORDER BY modality",
    "SELECT modality, count(*), sum(row) FROM removed GROUP BY modality",
    "SELECT modality, count(*), sum(row) FROM described GROUP BY modality",
)


def checksum(row: int, *values: bytes | None) -> int:
    """CRC-32 of a row; no text has the byte 0, and only the last value may be None."""
    return zlib.crc32(b"\0".join(value for value in values if value is not None), row)


def among(column: str) -> str:
    """A condition for any number of values, given as one JSON list."""
    return f"{column} IN (SELECT value FROM json_each(?))"
