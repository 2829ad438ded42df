"""Layouts of results.

In: an operation and the layouts of its arguments.  Out: the layout of its result, cheaper than FakeTensor.
"""
