"""Rules for functions of Python and its standard library.

In: a call of a registered function.  Out: its value under guards, an effect to replay, or a Break.
"""
