"""Hooks of `fully_shard` as targets of nodes.   tensors of a call  ->  the same, and the parameters of the module

In: tensors among the arguments, or the results, of a sharded module.  Out of `Unshard`: these tensors, through which
autograd reaches the hook behind the backward pass, and the gathered parameters.  `Reshard` returns nothing: torch
registers its hooks on the tensors themselves.  All work of torch's own hooks is done by them, at each call.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam
    from torch.distributed.fsdp._fully_shard._fsdp_state import FSDPState

Facts = tuple[object, ...]


def sharded_parameters(state: FSDPState) -> Iterator[FSDPParam]:
    """The FSDPParams of a state; torch 2.12 gave states several groups."""
    groups = state._fsdp_param_groups if hasattr(state, "_fsdp_param_groups") else [state._fsdp_param_group]
    for group in groups:
        yield from group.fsdp_params if group is not None else ()


def owners_of(parameter: FSDPParam) -> list[tuple[torch.nn.Module, str]]:
    """The modules that hold a parameter, and its names there."""
    info = parameter._module_info
    return [(info.module, info.param_name), *zip(info.shared_modules, info.shared_param_names, strict=True)]


def facts_of(state: FSDPState) -> Facts:
    """Layouts of gathered parameters, and their places."""
    return (state._mp_policy, *[(tuple(each._orig_size), each.sharded_param.dtype, each.sharded_param.requires_grad,
                                 tuple([(id(module), name) for module, name in owners_of(each)]))
                                for each in sharded_parameters(state)])


def same_facts(state: FSDPState, known: Facts) -> bool:
    """A pure reader for guards."""
    return facts_of(state) == known


class ShardingHook:
    """One hook around one module; neither is kept alive."""

    def __init__(self, state: FSDPState, module: torch.nn.Module) -> None:
        self.state, self.module = weakref.ref(state), weakref.ref(module)
        self.__name__ = self.__qualname__ = type(self).__name__.lower()

    def held(self) -> tuple[FSDPState, torch.nn.Module]:
        state, module = self.state(), self.module()
        assert state is not None and module is not None, "its module calls it"
        return state, module


class Unshard(ShardingHook):
    """The hook before a sharded module."""

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        state, module = self.held()
        args, _ = state._pre_forward(module, tensors or (None,), {})  # torch 2.11 takes the first of them on a GPU
        return (*args[:len(tensors)], *[each._unsharded_param for each in sharded_parameters(state)])


class Reshard(ShardingHook):
    """The hook behind a sharded module."""

    def __call__(self, *tensors: torch.Tensor) -> None:
        state, module = self.held()
        state._post_forward(module, (), tensors)
