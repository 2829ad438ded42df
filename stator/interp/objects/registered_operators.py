"""Operators found by name.   torch.ops.mylib.op.default, asked for the first time  ->  the operator, registered

In: a namespace of torch.ops or an operator, and the name asked of it.  Out: the attribute is there.  Torch makes these
objects when they are first asked for and keeps them for good, as an import does with a module.
"""

from __future__ import annotations

import torch

from stator import _hook

HOLDERS = frozenset({torch._ops._OpNamespace, torch._ops._Ops, torch._ops.OpOverloadPacket})


def resolve(holder: object, name: str) -> None:
    """What does not exist raises again where the program asks."""
    if name.startswith("__") or name in holder.__dict__:
        return
    token = _hook.pause()
    try:
        getattr(holder, name, None)
    finally:
        _hook.resume(token)
