"""`pretrained`: models that come with the package."""

import hashlib
from pathlib import Path

from ccal.errors import InputError
from ccal.model import DualEncoder, load

_FOLDER = Path(__file__).with_name("models")


def pretrained(name: str) -> DualEncoder:
    """A trained model that comes with the package, ready to encode.

    "folk-tunes" joins sheet music ("sheet": pictures (n, 1, 40, 100) of a staff, ink 1 and paper 0)
    and sound ("audio": spectrograms (n, 1, 136, 100) of `ccal.music.audio`), both with the
    same note in the middle. `model_card(name)` says what it was trained on and how well it does.

    >>> pretrained("folk-tunes").modalities
    ('sheet', 'audio')
    """
    return load(_model(name))


def model_card(name: str) -> str:
    """Training data, quality and licence of a model, as Markdown."""
    return (_model(name).with_suffix(".md")).read_text()


def _model(name: str) -> Path:
    known = sorted(path.stem for path in _FOLDER.glob("*.md"))
    if name not in known:
        raise InputError(f"there is no pretrained model {name!r}; there are {', '.join(known)}.")
    return _FOLDER / name


def held_out(name: str) -> set[str]:
    """Hashes (of `abc_hash`) of the tunes that a model has never seen, not even for validation."""
    return set(_model(name).with_suffix(".held-out.txt").read_text().split())


def library_folder(name: str) -> Path:
    """The library of a model's held-out tunes, embedded by it; it is without their notation."""
    return _model(name).with_suffix(".library")


def abc_hash(abc: str) -> str:
    """A short hash of a tune's notation.

    >>> abc_hash("X:1\\nK:C\\nCDE|")
    'b5c99ee72fa592da'
    """
    return hashlib.sha256(abc.encode()).hexdigest()[:16]
