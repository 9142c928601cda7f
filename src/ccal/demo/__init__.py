"""The main job, to watch.

tunes    folk tunes: sheet music and sound learn to find each other, and a recording finds its score
queries  recordings that a library has never heard, and what it makes of them
digits   the same in half a minute, without music: left halves of digits find their right halves
"""
