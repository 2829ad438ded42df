"""Rules for functions of torch that are no plain tensor operations.

In: a call of a registered function.  Out: nodes of the graph, values under guards, or a Break.
"""
