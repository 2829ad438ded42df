"""Iteration by C code.

In: an iterable that C code would run through.  Out: an interpreted loop, or an iterator that C code may have.
"""
