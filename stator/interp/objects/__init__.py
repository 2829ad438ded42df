"""Protocols of objects: attributes, items, operators, texts.

In: an object and an operation on it.  Out: the value as CPython defines it, each read with a source.
"""
