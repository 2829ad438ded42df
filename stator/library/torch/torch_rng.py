"""Rules for torch's random streams.   torch.manual_seed(0); torch.rand(4, generator=g)  ->  nodes, in their order

A Generator from outside is an input of the graph, one made inside is made by a node.  Compilers reorder operations and
know no generators: there each of these is a break.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.node import has_side_effect

from stator.breaks import Break
from stator.interp.calls.torch_arguments import RANDOM_STREAM, Generator, generator_in_graph, require_order
from stator.interp.rule_registry import refuse, rule
from stator.interp.vm import VM
from stator.source import Pinned

for _function in (torch.manual_seed, torch.set_rng_state):
    has_side_effect(_function)


def record(vm: VM, op: str, target: object, args: tuple[Any, ...], result: object = None) -> Any:
    node = vm.recorder.record(op, target, args, {}, result)
    vm.recorder.log.changes += 1  # a layer that does this is not like others (see replay)
    return node


@rule(torch.manual_seed)
def _manual_seed(vm: VM, seed: object) -> Any:
    require_order(vm)
    record(vm, "call_function", torch.manual_seed, (require_seed(seed),))
    return vm.heap.adopt(torch.default_generator, Pinned(torch.default_generator))


def require_seed(seed: object) -> Any:
    if type(seed) is torch.SymInt or type(seed) is int and -1 << 63 <= seed < 1 << 64:
        return seed
    raise Break("SB013", f"{RANDOM_STREAM}, seeded with something else than a number")


@rule(torch.get_rng_state)
def _get_state(vm: VM) -> Any:
    require_order(vm)
    return recorded_state(vm, "call_function", torch.get_rng_state, ())


def recorded_state(vm: VM, op: str, target: object, args: tuple[Any, ...]) -> Any:
    with torch._C.DisableTorchFunction():
        state = torch.empty(state_size(), dtype=torch.uint8, device="cpu")
    record(vm, op, target, args, state)
    return state


@functools.cache
def state_size() -> int:
    return torch.default_generator.get_state().numel()


@rule(torch.set_rng_state)
def _set_state(vm: VM, new_state: object) -> None:
    require_order(vm)
    record(vm, "call_function", torch.set_rng_state, (require_state(new_state),))


def require_state(state: Any) -> Any:
    if type(state) is not FakeTensor or state.dtype is not torch.uint8:
        raise Break("SB013", f"{RANDOM_STREAM}, set to something else than a state")
    return state


refuse(torch.seed, torch.initial_seed, torch.cuda.manual_seed, torch.cuda.manual_seed_all, torch.cuda.get_rng_state,
       torch.cuda.set_rng_state, code="SB013", detail=RANDOM_STREAM)


@rule(Generator)
def _new(vm: VM, device: object = "cpu") -> Any:
    require_order(vm, "a torch.Generator made inside")
    if type(device) not in (str, torch.device) or torch.device(device).type != "cpu":
        raise Break("SB013", "a torch.Generator of a device")
    generator = Generator()  # stands for the one that the graph makes
    vm.recorder.tie(generator, record(vm, "call_function", Generator, ()))
    vm.fresh[id(generator)] = generator
    return generator


@rule(Generator.manual_seed)
def _seed_generator(vm: VM, generator: object, /, seed: object) -> Any:
    generator = generator_in_graph(vm, generator)
    record(vm, "call_method", "manual_seed", (generator, require_seed(seed)))
    return generator


@rule(Generator.get_state)
def _generator_state(vm: VM, generator: Any, /) -> Any:
    generator = generator_in_graph(vm, generator)
    if generator.device.type != "cpu":
        raise Break("SB013", "the state of a device's torch.Generator")
    return recorded_state(vm, "call_method", "get_state", (generator,))


@rule(Generator.set_state)
def _set_generator_state(vm: VM, generator: object, /, new_state: object) -> Any:
    generator = generator_in_graph(vm, generator)
    record(vm, "call_method", "set_state", (generator, require_state(new_state)))
    return generator


refuse(Generator.seed, Generator.initial_seed, Generator.clone_state, Generator.graphsafe_get_state,
       Generator.graphsafe_set_state, Generator.get_offset, Generator.set_offset, code="SB013",
       detail="what a torch.Generator holds")
