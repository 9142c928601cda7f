"""Binary codes: embeddings as a few bytes each, and search by the number of bits that differ.

binary      BinaryCodes: fit, encode, save, load
heads       from embeddings to bits: signs, and signs after a rotation (iterative quantisation)
training    heads trained by the ranking loss, also through the towers
hamming     packed bits, and the nearest codes by NumPy or faiss
code_index  CodeIndex: Hamming search, re-ranked by vectors if wanted

`ccal.codes` has the public names.
"""
