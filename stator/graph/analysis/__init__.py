"""Facts about nodes and graphs: what they write, alias, repeat, raise.

In: an operation or a whole graph.  Out: the answer that guards, roll-back, order and compilers use.
"""
