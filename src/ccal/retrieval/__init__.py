"""Retrieval: an index that belongs to its model.

index      Index: build, open, add, remove, update, search
items      Item, Hit, Stats, and the errors of an index
embedding  raw items and vectors as unit rows; the fingerprint of a model
models     the model of an index: found where it was saved, or replaced by a newer one
filters    conditions on metadata
exact      exact search by matrix products
answers    hits that are made when somebody looks at them
backends   where an index is kept: a folder, PostgreSQL, Milvus
codes      binary codes
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ccal.retrieval.embedding import fingerprint
    from ccal.retrieval.index import Index
    from ccal.retrieval.items import (
        DamagedIndexError,
        Hit,
        IndexInUseError,
        Item,
        OtherModelError,
        Stats,
    )

__all__ = [
    "DamagedIndexError",
    "Hit",
    "Index",
    "IndexInUseError",
    "Item",
    "OtherModelError",
    "Stats",
    "fingerprint",
]

_MODULES = {"Index": "index", "fingerprint": "embedding"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_MODULES.get(name, 'items')}")
    value = globals()[name] = getattr(module, name)
    return value
