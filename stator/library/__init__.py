"""What single functions of Python, torch and numpy do in a trace.

In: a call of a function that has a rule.  Out: its value, its nodes, its effects, or a Break.
Importing this package registers every rule.
"""
