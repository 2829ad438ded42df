"""Branches on data.

In: a conditional jump on a value of the graph.  Out: an assertion in the graph, a cond operator, or a Break.
"""
