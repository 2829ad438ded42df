"""Rules for single functions of Python, torch and numpy.

In: a call of a function that has a rule.  Out: its value, its nodes, its effects, or a Break.
Importing this package imports all of its modules, which registers every rule.
"""

import importlib
import pkgutil

for _found in pkgutil.walk_packages(__path__, f"{__name__}."):
    importlib.import_module(_found.name)
