"""Suspended frames: generators, coroutines, async generators.

In: a frame that yields or awaits.  Out: a real generator object whose body the interpreter runs.
"""
