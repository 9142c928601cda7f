"""Work on shards by many workers: fit linear CCA, embed, and fill an index.

shards    Dataset: shards that workers read one by one
formats   Parquet files, .npy arrays and WebDataset archives
storage   files in folders and object stores
engines   LocalEngine: processes of this machine; RayEngine: a Ray cluster
fitting   exact linear CCA by map-reduce
encoding  embeddings of all shards, as shards with a manifest
indexing  an index of all shards
"""
