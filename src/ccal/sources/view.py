"""One modality: a column of a table or an array file, with its name."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ccal.errors import InputError

__all__ = ["View"]


@dataclass(frozen=True)
class View:
    """One modality as a person names it: `column`, `file.npy`, `file.npz:key`, or `name=` these.

    >>> View.of("image=photos/features.npz:resnet")
    View(name='image', file='photos/features.npz', key='resnet', column=None)
    >>> View.of("captions", table=True).column
    'captions'
    """

    name: str
    file: str | None
    key: str | None
    column: str | None

    @classmethod
    def of(cls, text: str, *, table: bool = False) -> Self:
        """Take apart what was given; columns are for pairs from a table only."""
        named = re.fullmatch(r"([A-Za-z_][\w-]*)=(.+)", text)
        name, rest = (named[1], named[2]) if named else (None, text)
        keyed = re.fullmatch(r"(.+\.npz):([^:/]+)", rest)
        file, key = (keyed[1], keyed[2]) if keyed else (rest, None)
        if table and not file.endswith((".npy", ".npz")):
            return cls(name or _identifier(rest), None, None, rest)
        return cls(name or _identifier(Path(file).stem), file, key, None)

    def check_name(self) -> None:
        """Refuse names that torch modules or `DualEncoder` need for themselves."""
        from torch.nn import ModuleDict

        from ccal.model import DualEncoder

        taken = inspect.signature(DualEncoder.__init__).parameters
        if (self.name in taken and self.name != "towers") or hasattr(ModuleDict, self.name):
            raise InputError(
                f"A modality cannot be called {self.name!r}; give it another name, as in "
                f"image={self.column or self.file}."
            )

    def hint(self) -> str:
        """Why what was given may not be found: a name with a space in it is taken for no name.

        >>> View.of("my photo=photos.npy").hint()
        " A name before '=' has letters, digits, _ and -, as in my_photo=photos.npy."
        """
        name, equals, rest = (self.column or self.file or "").partition("=")
        if not equals or "/" in name:
            return ""
        better = f"{_identifier(name)}={rest}"
        return f" A name before '=' has letters, digits, _ and -, as in {better}."


def _identifier(text: str) -> str:
    """A file's stem or a column as the name of a modality: word characters only."""
    return re.sub(r"\W+", "_", text).strip("_") or "modality"
