"""Sheet music and its sound as pairs, from tunes in ABC or MusicXML.

sources      tunes from files, folders and two old collections
abc          ABC texts: tunes, keys, default lengths
musicxml     MusicXML as ABC
parsing      one tune as a score
score        notes in bars; what is heard, and the onsets
mei          a score for the engraver
engraving    a staff line in pixels, with the place of each note head
isolation    a function in a child process that may crash
sound        a score as sound
sound_font   instruments from .sf2 files
resampling   audio at another sample rate
spectrogram  136 bins of logarithmic frequency, 31.25 frames a second
audio        recordings from files
rendering    both modalities of one tune
worker       a process that renders tunes
building     many tunes into a store, in parallel and resumable
refusals     folders that a store must not be built in
store        memory-mapped staff lines, spectrograms and onsets
mapped       arrays in files, and manifests that describe them
duplicates   tunes with the same melody
splits       train, validation and test tunes
snippets     the paper's pairs
augmentation pairs as they might have been
joined       pairs of several stores as one
thinned      some of many pairs
preview      a picture of what was built
"""

from ccal.data.music.abc import Tune, split_tunes
from ccal.data.music.audio import audio_spectrogram, read_audio
from ccal.data.music.augmentation import Augmentation, AugmentedPairs
from ccal.data.music.building import build_store
from ccal.data.music.duplicates import melody_groups
from ccal.data.music.engraving import Engraving, engrave
from ccal.data.music.joined import JoinedPairs
from ccal.data.music.parsing import parse_abc
from ccal.data.music.preview import write_preview
from ccal.data.music.rendering import MusicSettings, RenderedTune, render_tune
from ccal.data.music.score import Score
from ccal.data.music.snippets import SheetAudioPairs
from ccal.data.music.sound import default_sound_font, synthesise
from ccal.data.music.sources import collection, read_tunes
from ccal.data.music.spectrogram import spectrogram
from ccal.data.music.splits import split_tunes_by_melody
from ccal.data.music.store import SheetAudioStore
from ccal.data.music.thinned import ThinnedPairs

__all__ = [
    "Augmentation",
    "AugmentedPairs",
    "Engraving",
    "JoinedPairs",
    "MusicSettings",
    "RenderedTune",
    "Score",
    "SheetAudioPairs",
    "SheetAudioStore",
    "ThinnedPairs",
    "Tune",
    "audio_spectrogram",
    "build_store",
    "collection",
    "default_sound_font",
    "engrave",
    "melody_groups",
    "parse_abc",
    "read_audio",
    "read_tunes",
    "render_tune",
    "spectrogram",
    "split_tunes",
    "split_tunes_by_melody",
    "synthesise",
    "write_preview",
]
