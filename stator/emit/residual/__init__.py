"""The residual program around one graph.

In: a finished trace.  Out: Python source that loads inputs, calls the graph, handles its failure.
"""
