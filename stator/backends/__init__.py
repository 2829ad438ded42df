"""Compilers of graphs.

In: a torch.fx.GraphModule and its fake inputs.  Out: a callable that computes the same from real inputs.
"""
