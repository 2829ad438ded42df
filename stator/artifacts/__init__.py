"""Captured entries as files.   entry  ->  container  ->  signed bytes in a store  ->  entry of another process

In: entries of one process.  Out: the same entries in another process, without a trace or a compilation.
`container.py` is the file format, `signing.py` the key of the user, `store.py` the folder that processes share.
"""
