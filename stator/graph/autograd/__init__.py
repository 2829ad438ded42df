"""Autograd around graphs.

In: histories of fakes, operations that only autograd can do.  Out: metadata, and cuts between compiled pieces.
"""
