"""Record torch calls into an FX graph.

In: torch calls on fake tensors.  Out: FX nodes with the user's stack on each, and graph modules.
"""
