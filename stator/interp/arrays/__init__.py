"""numpy arrays in a trace.

In: operations on arrays.  Out: nodes over the tensors that share their memory, or numpy's own result on a stand-in.
"""
