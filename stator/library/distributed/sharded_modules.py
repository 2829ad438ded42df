"""Modules sharded by fully_shard.   state._pre_forward(module, args, kwargs)  ->  a node that gathers its parameters

In: calls of the two hooks that torch puts around a sharded module.  Out: one node each, at which the graph of a
compiler is cut.  The first gives the gathered parameters, which the module holds from there on.  Behind the second the
module holds its shards again, or not: a read of its parameters breaks.  Layouts of gathered parameters are facts, which
a guard compares.  Where a hook does more (casts results, moves arguments to a device, calls extensions of tensors), it
breaks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.modules._functions import BackwardHookFunction

from stator.breaks import Break
from stator.graph.analysis.autograd_boundaries import BOUNDARY
from stator.graph.analysis.mutation import COLLECTIVES
from stator.heap.raw_access import CONSTANT_TYPES
from stator.heap.tracker import NO_KEY, Box
from stator.interp.rule_registry import rule
from stator.interp.vm import VM
from stator.library.autograd.gradients import require_plain
from stator.ranks.sharding_hooks import (
    Reshard,
    ShardingHook,
    Unshard,
    facts_of,
    owners_of,
    same_facts,
    sharded_parameters,
)
from stator.source import Pinned, Source

if TYPE_CHECKING:
    from torch.distributed.fsdp._fully_shard._fsdp_state import FSDPState

STATES = "torch.distributed.fsdp._fully_shard._fsdp_state"
_WHAT = "the own work of a wrapper around modules"


def refused(why: str) -> Break:
    return Break("SB010", f"fully_shard, {why}: {_WHAT}", untouched=True)


def known_state(vm: VM, state: object, module: object) -> tuple[FSDPState, torch.nn.Module]:
    """The state and the module behind stand-ins, where their hooks are plain."""
    if vm.heap.by_standin.get(id(state)) is None or vm.heap.by_standin.get(id(module)) is None:
        raise refused("made inside the call")
    recorder, backend = vm.recorder, vm.recorder.backend
    if not (backend.in_order or backend.may_be_cut) or recorder.scope.enclosing is not None:
        raise refused("in a graph that cannot be cut")
    sharded, owner = vm.guard_identity(state), vm.guard_identity(module)
    if len(sharded._modules) != 1 or sharded._mp_policy.output_dtype is not None:
        raise refused("of several modules, or with a cast of results")
    with torch._C.DisableTorchFunction():
        for each in sharded_parameters(sharded):
            if each.is_dtensor or each.sharded_param.is_meta or hasattr(
                    each._sharded_local_tensor, "fsdp_pre_all_gather"):
                raise refused("of parameters that are no plain tensors")
        vm.heap.guard_call(same_facts, True, Pinned(sharded), Pinned(facts_of(sharded)))
    try:
        require_plain(vm, _WHAT)
    except Break:
        raise refused("in a graph that cannot be cut there") from None
    recorder.propagation.require_exact()
    return sharded, owner


def tensors_in(vm: VM, value: object) -> Iterator[FakeTensor]:
    """The tensors in containers; another object breaks, which may hold some."""
    if type(value) is FakeTensor:
        yield value
    elif type(value) in (list, tuple, dict):
        vm.heap.expose_deep(value)
        for each in value.values() if isinstance(value, dict) else value:  # type: ignore[attr-defined]
            yield from tensors_in(vm, each)
    elif type(value) not in CONSTANT_TYPES and not isinstance(value, (torch.SymInt, torch.SymFloat)):
        raise refused(f"called with a {type(value).__name__}")


def changed_by(dtype: torch.dtype | None) -> Callable[[FakeTensor], bool]:
    """Whether the hook replaces a tensor: by one of another dtype, or one whose gradient it sees."""
    return lambda tensor: tensor.requires_grad and torch.is_grad_enabled() or dtype not in (None, tensor.dtype) \
        and tensor.is_floating_point()


def call_hook(vm: VM, hook: ShardingHook, tensors: list[FakeTensor], made: tuple[FakeTensor, ...] | None) -> None:
    node = vm.recorder.record("call_function", hook, tuple(tensors), {}, made, (), COLLECTIVES)
    if not vm.recorder.backend.in_order:
        node.meta[BOUNDARY] = True
    vm.recorder.log.changes += 1
    vm.autograd.watches[id(hook)] = (hook, node)  # a backward pass in the graph would not call what it registers


def gathered(vm: VM, state: FSDPState) -> list[FakeTensor]:
    """Fakes of the parameters that torch gathers."""
    found = []
    for each in sharded_parameters(state):
        with torch._C.DisableTorchFunction():
            dtype, requires_grad = each.sharded_param.dtype, each.sharded_param.requires_grad
            dtype = state._mp_policy.param_dtype or dtype if dtype.is_floating_point else dtype
            with vm.recorder.fake_mode:
                fake = torch.empty(each._orig_size, dtype=dtype, device=state._device).requires_grad_(requires_grad)
        fake._is_param = True
        found.append(fake)
    return found


def hold(vm: VM, state: FSDPState, value_of: Callable[[torch.nn.Module, int], object]) -> None:
    """Let modules hold other values, which torch has put there; the program changes nothing."""
    for number, each in enumerate(sharded_parameters(state)):
        for module, name in owners_of(each):
            if type(module).__setattr__ is not torch.nn.Module.__setattr__:
                raise refused("of a module with a __setattr__ of its own")
            held = vm.sync(lambda module=module: vm.load_attr(vm.heap.adopt(module, Pinned(module)), "_parameters"))
            value, tracker = value_of(module, number), vm.heap.by_standin[id(held)]
            dict.__setitem__(held, name, value)
            tracker.initial[name] = value


def _no_source(base: Source) -> Source:
    raise refused("whose parameters are read outside its forward()")


def register_hooks(cls: type[FSDPState]) -> None:
    """Called when the program has imported fully_shard."""
    before, behind = cls._pre_forward, cls._post_forward

    @rule(before)
    def _pre_forward(vm: VM, self: object, module: object, args: tuple[object, ...], kwargs: dict[str, object]
                     ) -> object:
        state, owner = known_state(vm, self, module)
        if type(args) is not tuple or type(kwargs) is not dict:
            raise refused("called with unusual arguments")
        vm.heap.expose_deep((args, kwargs))
        with torch._C.DisableTorchFunction():
            given, inner = ([each for value in (*args, *kwargs.values()) if (type(value) is FakeTensor) is direct
                             for each in tensors_in(vm, value)] for direct in (True, False))
            if any(each.device.type != state._device.type for each in (*given, *inner)):
                raise refused("which moves its arguments to a device")
            policy = state._mp_policy
            dtype = policy.param_dtype if policy.cast_forward_inputs else None
            if any(map(changed_by(dtype), inner)):
                raise refused("called with tensors in containers")
            passed = [each for each in given if changed_by(dtype)(each)]
            with vm.recorder.fake_mode:
                cast = [each.to(dtype) if dtype is not None else each for each in passed]
            made = BackwardHookFunction.apply(*cast) if passed else ()
        parameters = gathered(vm, state)
        call_hook(vm, Unshard(state, owner), passed, (*made, *parameters))
        hold(vm, state, lambda module, number: parameters[number])
        replaced = {id(old): new for old, new in zip(passed, made, strict=True)}
        result = (tuple([replaced.get(id(each), each) for each in args]),
                  {name: replaced.get(id(each), each) for name, each in kwargs.items()})
        vm.fresh[id(result[1])] = result[1]
        return result

    @rule(behind)
    def _post_forward(vm: VM, self: object, module: object, input: object, output: object) -> object:
        state, owner = known_state(vm, self, module)
        with torch._C.DisableTorchFunction():
            tensors = [each for each in tensors_in(vm, output) if each.requires_grad and torch.is_grad_enabled()]
        call_hook(vm, Reshard(state, owner), tensors, None)
        hold(vm, state, lambda module, number: Box(vm.heap, None, _no_source, Pinned(module), NO_KEY))
        return output

