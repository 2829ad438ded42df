"""Effects in the residual program.

In: differences between shadows and their snapshots, noted effects.  Out: statements that write them back in order.
"""
