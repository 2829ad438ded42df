"""Tensor subclasses in graphs.

In: a class or instance of a subclass.  Out: how it is traced, and the fake behind it.
"""
