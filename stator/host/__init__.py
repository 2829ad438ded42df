"""The process that Stator runs in.

In: interpreter-wide state: signal handlers, replaced builtins, patched torch methods, real classes of values.
Out: helpers that keep Stator's own code independent of what the program did to them.
"""
