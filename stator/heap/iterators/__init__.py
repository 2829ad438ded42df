"""Iterators from outside.

In: a user's iterator.  Out: one of our own at the same position, and what the user's will yield.
"""
