"""Rules for names of objects, modules and frames.

In: a call that lists or makes names.  Out: a fresh list or object under guards, or a Break.
"""
