"""Work on shards by many workers: fit linear CCA, embed, and fill an index.

shards    Dataset: Parquet files, .npy arrays or WebDataset archives
engines   LocalEngine: processes of this machine; RayEngine: a Ray cluster
fitting   exact linear CCA by map-reduce
encoding  embeddings of all shards, as shards with a manifest
indexing  an index of all shards
"""
