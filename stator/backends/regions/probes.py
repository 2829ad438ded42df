"""Look at single nodes.   F.linear(x, w)  ->  runs a kernel of its own; one gradient for x

In: a node.  Out: facts that its call on fake tensors shows.  Calls that write, and functions of the user, are not made.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.node import map_arg
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from stator.backends.pieces import torch_set_to
from stator.backends.regions.flow import Flow
from stator.graph.analysis.autograd_boundaries import functions_behind
from stator.graph.analysis.mutation import is_torchs, tensors_in, writes
from stator.graph.fx.nodes import run_target


def fresh_fake(fake: torch.Tensor, mode: FakeTensorMode) -> torch.Tensor:
    """A fake of the same layout on memory of its own, without a history."""
    with torch._C.DisableTorchFunction(), torch.no_grad(), mode:
        made = torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device=fake.device)
        return made.requires_grad_(fake.requires_grad)


class _Kernels(TorchDispatchMode):
    """Whether an operator runs that compilers leave to a library: those with a formula for their work."""

    def __init__(self) -> None:
        super().__init__()
        self.found = False

    def __torch_dispatch__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
        self.found = self.found or getattr(func, "_overloadpacket", None) in flop_registry
        return func(*args, **kwargs or {})


class Probes:
    """Answers for the nodes of one graph, found once for each content."""

    def __init__(self, flow: Flow, mode: FakeTensorMode) -> None:
        self.flow, self.mode = flow, mode
        self.kernels: dict[int, bool] = {}

    def runs_kernel(self, place: int) -> bool:
        """Whether a node begins with work that no compiler fuses with what comes before it."""
        number = self.flow.numbers[place]
        if number not in self.kernels:
            self.kernels[number] = self._runs_kernel(self.flow.body[place])
        return self.kernels[number]

    def _runs_kernel(self, node: fx.Node) -> bool:
        seen = _Kernels()
        with torch.no_grad(), seen:
            self.call(node)
        return seen.found

    def gradients(self, node: fx.Node, given: fx.Node) -> int:
        """How many gradients autograd adds up for one use of `given`; -1 where that is unknown."""
        made, fakes = self.call(node)
        if made is None or given not in fakes:
            return -1
        functions = functions_behind(list(tensors_in(made)))
        return sum(getattr(each, "variable", None) is fakes[given]
                   for function in functions for each, _ in function.next_functions)

    def is_cast(self, node: fx.Node, given: fx.Node) -> bool:
        """Whether the operation works on a copy of `given` in another dtype; also where that is unknown."""
        with torch.enable_grad(), torch_set_to(self.flow.states[self.flow.place[node]]):
            made, fakes = self.call(node)
        if made is None or given not in fakes:
            return True
        users = [function for function in functions_behind(list(tensors_in(made)))
                 for each, _ in function.next_functions if getattr(each, "variable", None) is fakes[given]]
        return not users or any(function.name() == "ToCopyBackward0" for function in users)

    def call(self, node: fx.Node) -> tuple[Any, dict[fx.Node, Any]]:
        """The result on fresh fakes, and these; None where the node is not called."""
        fakes: dict[fx.Node, Any] = {}
        for each in node.all_input_nodes:
            value = self.flow.value(each)
            if type(value) is not FakeTensor and type(value) is not torch.SymInt:
                return None, fakes
            fakes[each] = fresh_fake(value, self.mode) if type(value) is FakeTensor else value
        if writes(node) or node.op not in ("call_function", "call_method") \
                or node.op == "call_function" and not is_torchs(node.target):
            return None, fakes
        args, kwargs = map_arg((node.args, node.kwargs), fakes.__getitem__)
        with contextlib.suppress(Exception), torch._C.DisableTorchFunction(), self.mode, enable_python_dispatcher():
            return run_target(node.op, node.target, args, kwargs), fakes
        return None, fakes
