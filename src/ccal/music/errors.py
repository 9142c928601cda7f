"""What can be wrong with a library, besides damage."""

from __future__ import annotations

from ccal.errors import InputError

__all__ = ["OtherTunesError"]


class OtherTunesError(InputError):
    """The library was made of other tunes than its store has now."""
