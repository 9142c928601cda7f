"""Hashes that say which data and which split a result is about."""

from __future__ import annotations

import hashlib

__all__ = ["hash_of"]


def hash_of(*parts: bytes) -> str:
    """The first 16 digits of the SHA-256 of all parts."""
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]
