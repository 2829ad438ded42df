"""Symbolic numbers.

In: arithmetic, comparisons and conversions of symbolic ints and floats.  Out: symbols, nodes, or guarded constants.
"""
