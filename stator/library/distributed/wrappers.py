"""Wrappers around modules: DDP, FSDP.   their own work runs natively, and the modules inside are captured

In: calls of functions by which a wrapper gathers parameters, copies buffers or prepares a reducer.  Out: a Break at
each.  Those functions keep state in C++, free and refill storages, and wait for other ranks: none of that belongs in a
graph.  Rules for a module that is imported later are registered before the trace that follows.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from stator.breaks import Break
from stator.interp.rule_registry import INTERPRETED, code_rule, refuse, rule
from stator.interp.vm import VM
from stator.library.distributed.dtensor import MODULE, register_rules
from stator.library.distributed.sharded_modules import STATES, register_hooks
from stator.ranks.buckets import note_forward

_FSDP = "torch.distributed.fsdp"
_NATIVE = "the own work of a wrapper around modules"


def _refuse_code(function: types.FunctionType) -> None:
    """Break at every function with this code: a decorator makes it again and again."""
    @code_rule(function.__code__)
    def refused(vm: VM, cont: object, function: types.FunctionType, /, *args: object, **kwargs: object) -> None:
        raise Break("SB010", f"{function.__qualname__}: {_NATIVE}", untouched=True)


def _refuse_forward(cls: type[torch.nn.Module]) -> None:
    refuse(cls.forward, code="SB010", detail=f"{cls.__name__}.forward: {_NATIVE}", untouched=True)


def _refuse_disabled(decorator: Callable[..., types.FunctionType]) -> None:
    _refuse_code(decorator(_refuse_disabled))


_LATER: dict[str, tuple[str, Callable[..., None]]] = {  # a member of the module, and how to register it
    MODULE: ("DTensor", lambda cls: register_rules()),
    f"{_FSDP}.fully_sharded_data_parallel": ("FullyShardedDataParallel", _refuse_forward),
    f"{_FSDP}._fully_shard._fsdp_common": ("_dynamo_disable", _refuse_disabled),
    STATES: ("FSDPState", register_hooks),
}


def register_loaded() -> None:
    """Register rules for modules that the program has imported since."""
    for name in list(_LATER):
        member, register = _LATER[name]
        if hasattr(sys.modules.get(name), member):  # else it is not imported, or only in part
            del _LATER[name]
            register(getattr(sys.modules[name], member))


if dist.is_available():
    refuse(DistributedDataParallel._pre_forward, DistributedDataParallel._post_forward, code="SB010",
           detail=f"DDP: {_NATIVE}", untouched=True)

    @rule(DistributedDataParallel._run_ddp_forward)
    def _forward_of_ddp(vm: VM, self: DistributedDataParallel, *inputs: object, **kwargs: object) -> object:
        tracker = vm.heap.by_standin.get(id(self))
        if tracker is not None:
            note_forward(vm.recorder.graph, tracker.original)
        return INTERPRETED
