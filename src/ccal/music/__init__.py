"""Sheet music and its sound: pairs to learn from, and tunes that are found by them.

tunes                    tunes of files, folders and two old collections; equal melodies; splits
abc, musicxml, midi      readers of notation
abc_writing              notes in time as ABC
score                    notes in bars, the notes that sound, and their onsets
mei, engraving           a score as a staff line in pixels, with the position of each note head
sound, sound_font        a score as sound
audio, decoding          files of sound as samples, and samples as a spectrogram
rendering                both modalities of one tune
building, store          many tunes in memory-mapped arrays, rendered in parallel, resumable
pairs, augmentation      the paper's pairs; joined, thinned, varied
looks, wear              how engravers differ, and what paper and cameras do to a staff line
pictures                 staff lines and pairs to look at
book, library            TuneBook shows and plays tunes, TuneLibrary finds them
default                  libraries of stores, of notation, and of the package
queries                  recordings, as people have them
pages, staves, heads     pages of music, their staff lines straightened, and the note heads on them
reading                  the tunes of a page, by the model and by its note heads
embedding                snippets in the common space
identification           votes for tunes, of recordings and of pages
hearing, alignment       tunes proposed by the model and laid along a recording note by note
"""

from ccal.optional import lazy_names

__getattr__, __all__ = lazy_names(__name__)
