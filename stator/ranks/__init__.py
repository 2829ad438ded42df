"""Several processes that run one program.

In: collectives of torch.distributed, misses of compiled functions.  Out: operators of the graph and their handles
(`operators.py`, `pending_work.py`).  Nothing here runs before a program uses a process group.
"""
