"""Adopt outside objects, one file for each kind.

In: a user's object and its source.  Out: its stand-in and the guards behind it.
"""
