"""The folder backend: a database that holds everything, and files that answer fast.

backend     FolderBackend: changes and searches, and the names in the folder
item_store  ItemStore: every item and its vector, in SQLite
change_counter  ChangeCounter: tells that its last changes are lost
schema      its tables, and the checksums of their rows
segments    the files of a segment: vectors, and records of their items
compaction  new rows become segments, small segments larger ones; damaged files are written again
view        what a search sees: segments, rows in none yet, rows removed
candidates  approximate search in large segments, by faiss or binary codes
"""
