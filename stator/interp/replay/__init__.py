"""Repeated layers.

In: the recorded trace of one module call.  Out: the trace of a like module, without interpreting it.
"""
