"""What can be wrong with an index."""

from __future__ import annotations

from ccal.errors import CcalError, InputError

__all__ = ["DamagedIndexError", "IndexInUseError", "OtherModelError"]


class DamagedIndexError(CcalError):
    """The truth of an index cannot be read, so that it cannot be trusted; names the file."""


class IndexInUseError(CcalError):
    """Another process, or another `Index` of this one, is writing to the index."""


class OtherModelError(InputError):
    """The index was made by another model, whose embeddings this one's cannot be compared with."""
