"""Binary codes: embeddings as a few bytes each, and search by the number of bits that differ.

binary      BinaryCodes: fit, encode, save, load
heads       from embeddings to bits: signs, signs after a rotation, and heads that are trained
code_index  packed bits, and CodeIndex: Hamming search, re-ranked by vectors if wanted

`ccal.codes` has the public names.
"""
