"""Hooks on tensors from outside.   the hooks a trace has registered  ->  x.register_hook(f), in their order

In: `vm.autograd.hooks`.  Out: statements of the residual, behind the graph; a handle that the program keeps is the real
one.
"""

from __future__ import annotations

import torch

from stator.breaks import Break
from stator.emit.services import Rebuilder


def write_hooks(build: Rebuilder) -> None:
    for handle, hook in list(build.vm.autograd.hooks.values()):
        if hook is None or hook.node is not None:
            continue
        with torch._C.DisableTorchFunction():
            if hook.tensor._version != hook.version:
                raise Break("SB016", "a hook on a tensor that is changed in place afterwards")
        tensor, function = build.value(hook.tensor), build.value(hook.function)
        build.variable(handle, "hook", f"{build.method(hook.method)}({tensor}, {function})")
