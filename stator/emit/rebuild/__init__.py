"""Values in the residual program.

In: a stand-in or a fresh object of the trace.  Out: an expression that makes the user's object.
"""
