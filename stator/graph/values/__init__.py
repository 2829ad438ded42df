"""Values that are known while tracing.

In: tensors whose items a branch needs.  Out: numbers under guards, symbols, or ranges.
"""
