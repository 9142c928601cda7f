"""The sound of a tune of a store, to listen to."""

from __future__ import annotations

import io

import numpy as np

from ccal.data.music import SheetAudioStore, parse_abc, synthesise
from ccal.data.music.sound import RENDER_RATE
from ccal.errors import InputError
from ccal.optional import require

__all__ = ["wav"]


def wav(store: SheetAudioStore, tune: int, seconds: tuple[float, float] | None = None) -> bytes:
    """A WAV file, 16 bits and one channel, of a tune, or of its seconds from..to."""
    abc = store.tunes[tune].abc
    if abc is None:
        raise InputError(
            f"the store {str(store.folder)!r} does not know how its tunes are written, as it was "
            "built by an earlier version; `ccal data build` (in Python, build_store) with the same "
            "tunes adds that."
        )
    settings = store.settings
    sound = synthesise(
        parse_abc(abc),
        sound_font=settings["sound_font"],
        program=settings["program"],
        tempo=settings["tempo"],
    )
    if seconds is not None:
        first, last = (round(second * RENDER_RATE) for second in seconds)
        if not 0 <= first < last:
            raise InputError(f"seconds must be from..to, got {seconds[0]:g} and {seconds[1]:g}.")
        sound = sound[first:last]
    # As loud as can be, but for a little.
    sound = sound * (0.9 / max(float(np.abs(sound).max(initial=0)), 1e-6))
    module = require("soundfile", extra="music", purpose="Writing audio")
    content = io.BytesIO()
    module.write(content, sound, RENDER_RATE, format="WAV", subtype="PCM_16")
    return content.getvalue()
