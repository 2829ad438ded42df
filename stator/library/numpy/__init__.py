"""Rules for functions of numpy.

In: a call of a numpy function.  Out: nodes over the memory of tensors, or numpy's own result.
"""
