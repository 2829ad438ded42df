"""State that rules for Python functions keep over a trace.

In: what the program does to warnings, random streams and abstract classes.  Out: the values that its later calls see.
"""
