"""Settings of users.

In: arguments of `compile()`, `stator.config`, the stance, marks on functions and tensors, torch's own marks.
Out: validated values that every other room reads.
"""
