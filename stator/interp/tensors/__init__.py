"""Members of tensors beside their values.

In: flags, items, gradients, memory and copies of tensors.  Out: nodes of the graph and notes for the residual.
"""
