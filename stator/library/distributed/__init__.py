"""Rules for torch.distributed.

In: a call of a method of a process group, or of a wrapper around modules.  Out: nodes of the graph, facts of the world
under the identity of the group, or a Break.  Where torch has no torch.distributed, no rule is registered.
"""
