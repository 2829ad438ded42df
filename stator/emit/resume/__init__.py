"""Go on after a graph break.

In: suspended frames.  Out: resume points, resume functions, and the native run of one instruction.
"""
