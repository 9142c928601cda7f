"""The Milvus backend.

backend  MilvusBackend: changes and searches
server   a Milvus server, and the collection of one index there
"""
