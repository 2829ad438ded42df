"""Wrappers around modules: DDP, FSDP.   their own work runs natively, and the modules inside are captured

In: calls of functions by which a wrapper gathers parameters, copies buffers or prepares a reducer.  Out: a Break at
each.  Those functions keep state in C++, free and refill storages, and wait for other ranks: none of that belongs in a
graph.  Rules for a module that is imported later are registered before the trace that follows.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from stator.breaks import Break
from stator.interp.rule_registry import code_rule, refuse
from stator.interp.vm import VM

_FSDP = "torch.distributed.fsdp"
_NATIVE = "the own work of a wrapper around modules"


def _refuse_code(function: types.FunctionType) -> None:
    """Break at every function with this code: a decorator makes it again and again."""
    @code_rule(function.__code__)
    def refused(vm: VM, cont: object, function: types.FunctionType, /, *args: object, **kwargs: object) -> None:
        raise Break("SB010", f"{function.__qualname__}: {_NATIVE}", untouched=True)


def _one(module: types.ModuleType) -> None:
    refuse(module.FullyShardedDataParallel.forward, code="SB010", detail=f"FSDP.forward: {_NATIVE}", untouched=True)


def _two(module: types.ModuleType) -> None:
    _refuse_code(module._dynamo_disable(_two))


_LATER: dict[str, Callable[[types.ModuleType], None]] = {
    f"{_FSDP}.fully_sharded_data_parallel": _one,
    f"{_FSDP}._fully_shard._fsdp_common": _two,
}


def register_loaded() -> None:
    """Register rules for modules that the program has imported since."""
    for name in [name for name in _LATER if name in sys.modules]:
        _register(name)


@functools.cache
def _register(name: str) -> None:
    _LATER.pop(name)(sys.modules[name])


if dist.is_available():
    refuse(DistributedDataParallel._pre_forward, DistributedDataParallel._post_forward, code="SB010",
           detail=f"DDP: {_NATIVE}", untouched=True)
