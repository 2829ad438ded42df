"""torch.Generators as inputs of the graph.   torch.rand(4, generator=g)  ->  g is an input of the graph"""

from __future__ import annotations

from typing import Any

import torch

from stator.breaks import Break
from stator.interp.services import VM

Generator: Any = torch.Generator
RANDOM_STREAM = "torch's random number generator"


def require_order(vm: VM, what: str = RANDOM_STREAM) -> None:
    """Break unless what is recorded will run in the program's order, once."""
    if not vm.recorder.backend.in_order or vm.recorder.scope.enclosing is not None:
        raise Break("SB013", what)


def in_graph(vm: VM, generator: object) -> Any:
    """The generator, once the graph knows it."""
    require_order(vm, "a torch.Generator")
    if type(generator) is not Generator:
        raise Break("SB013", "a subclass of torch.Generator")
    if id(generator) not in vm.recorder.nodes:
        vm.recorder.add_object(generator, vm.heap.source_of(generator))
    return generator
