"""Rules for autograd: backward passes, hooks, checkpoints, functions with a backward of their own.

In: a call of a registered function of torch.autograd, of a tensor or of a module.  Out: nodes of the graph, or a Break.
"""
