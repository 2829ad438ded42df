"""The process group of a name.   "0"  ->  the group, found where the interpreter can guard it

torch keeps groups by name in C++ as well as in Python, and changes both together.
"""

from __future__ import annotations

import torch.distributed as dist


def group_of_name(name: str) -> dist.ProcessGroup | None:
    """The group that has this name now; None where no group has it."""
    for group, known in dist.distributed_c10d._world.pg_names.items():
        if known == name:
            return group
    return None
