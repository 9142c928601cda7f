"""Sheet music and its sound: pairs to learn from, and tunes that are found by them.

tunes                    tunes of files, folders and two old collections; equal melodies; splits
abc, musicxml            readers of notation
score                    notes in bars, the notes that sound, and their onsets
mei, engraving           a score as a staff line in pixels, with the position of each note head
sound, sound_font        a score as sound
audio                    sound as a spectrogram
rendering                both modalities of one tune
building, store          many tunes in memory-mapped arrays, rendered in parallel, resumable
pairs, augmentation      the paper's pairs; joined, thinned, varied
pictures                 staff lines and pairs to look at
library, default         TuneLibrary, and the library that comes with the package
queries                  recordings and pictures of staves, as people have them
embedding                snippets in the common space
identification           tunes ranked by votes and alignment
"""

from ccal.music.abc import Tune, parse_abc, split_tunes
from ccal.music.audio import audio_spectrogram, read_audio, spectrogram
from ccal.music.augmentation import Augmentation, AugmentedPairs
from ccal.music.building import build_store
from ccal.music.engraving import Engraving, engrave
from ccal.music.library import Snippet, TuneLibrary, TuneMatch
from ccal.music.pairs import JoinedPairs, SheetAudioPairs, ThinnedPairs
from ccal.music.pictures import write_preview
from ccal.music.rendering import MusicSettings, RenderedTune, render_tune
from ccal.music.score import Score
from ccal.music.sound import default_sound_font, synthesise
from ccal.music.store import SheetAudioStore
from ccal.music.tunes import collection, melody_groups, read_tunes, split_tunes_by_melody

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
    "Snippet",
    "ThinnedPairs",
    "Tune",
    "TuneLibrary",
    "TuneMatch",
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
