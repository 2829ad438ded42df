"""Compile in another process.

In: a captured graph.  Out: `Deferred` until a worker has compiled it; then Inductor's caches have it.
"""
