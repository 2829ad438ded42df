"""The call protocol.

In: a callable and its arguments.  Out: an interpreted frame, a recorded torch call, or a listed C call.
"""
