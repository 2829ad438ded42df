"""Source changes for breaks and recompiles, tried before they are shown.

In: a function of the user and recorded calls of it (`api.py`).  Out: `Proposals`, each with its diff and its savings:
`search.py` tries the rewrites that `registry.py` lists, on copies (`trial.py`), and compares them with eager.
"""
