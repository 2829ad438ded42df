"""Rules for files, the environment and hooks of the process.

In: a call that opens a file, sets a variable or reads a hook of sys.  Out: a value under guards, an effect, or a Break.
"""
