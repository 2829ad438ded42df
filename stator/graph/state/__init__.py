"""Settings of torch while a program is traced.

In: grad mode, autocast, modes, loggers.  Out: nodes of the graph, and torch as it was.
"""
