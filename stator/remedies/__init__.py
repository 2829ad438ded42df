"""Source changes for breaks and recompiles, tried before they are shown.

In: a function of the user and recorded calls of it.  Out: `Proposals`, each with its diff and its savings; a rewrite
that changes a result is dropped.

`api.py` is the public function, `search.py` the loop. `registry.py` lists the rewrites of `rewrites/` by code.
`trial.py` captures a changed copy and compares it with eager of the original.
"""
