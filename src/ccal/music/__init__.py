"""Finding a tune: a recording finds its place in the score, a line of score its sound.

library     TuneLibrary: build, open, identify, identify_sheet
matches     what was found (TuneMatch, Snippet)
places      the moments of a tune that can be found
snippets    pieces of staff and sound, and their embeddings
strips      all staffs and sounds of a store
recordings  from a recording to its snippets
pictures    from a picture of a staff to its snippets
finding     tunes ranked by votes and alignment
alignment   the best line, and the best way, along a tune
drawing     a staff as a picture, with a place marked
playing     a tune as a WAV file
default     the library that comes with the package
files       a library on disk
errors      OtherTunesError
"""

from ccal.music.library import TuneLibrary
from ccal.music.matches import Snippet, TuneMatch

__all__ = ["Snippet", "TuneLibrary", "TuneMatch"]
