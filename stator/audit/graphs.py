"""Find the operation that a backend gets wrong.   a captured graph, its inputs, the backend  ->  a small wrong graph

A graph is wrong if the compiled form and the graph itself, run node by node, give different results.  Prefixes are
compiled with all their values as results; the shortest wrong one ends in the operation.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from stator.audit.likeness import unlike
from stator.backends.compilation import call_backend, compile_graph
from stator.backends.registry import find_backend
from stator.errors import BackendError
from stator.graph.analysis.mutation import tensors_in
from stator.settings.options import Settings


class Segments:
    """A backend that compiles with another one and keeps each graph with the inputs of its first call."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.found: list[tuple[fx.GraphModule, tuple[Any, ...]]] = []

    def __call__(self, gm: fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
        kept = copy_of(gm)
        compiled = call_backend(find_backend(self.settings.backend), gm, example_inputs, self.settings)
        calls = itertools.count()

        def run(*inputs: object) -> Any:
            if next(calls) == 0:
                self.found.append((kept, copies(inputs)))
            return compiled(*inputs)

        return run


def copies(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value.detach().clone().requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor)
                 else value for value in values)


def copy_of(gm: fx.GraphModule, last: fx.Node | None = None, only: bool = False) -> fx.GraphModule:
    """The graph, or its part up to a node with the values of all its nodes (`only`: of that node) as results."""
    graph, results = fx.Graph(), []
    made: dict[fx.Node, fx.Node] = {}
    for node in gm.graph.nodes:
        if node.op == "output":
            if last is None:
                graph.output(fx.map_arg(node.args[0], lambda each: made[each]))
            break
        made[node] = copied = graph.node_copy(node, lambda each: made[each])
        copied.meta = {"stack_trace": node.meta.get("stack_trace")}
        if node.op.startswith("call") and (not only or node is last):
            results.append(copied)
        if node is last:
            graph.output(tuple(results))
            break
    if only:
        graph.eliminate_dead_code()
    return fx.GraphModule(gm, graph)


def is_wrong(gm: fx.GraphModule, inputs: tuple[Any, ...], settings: Settings, exact: bool) -> bool:
    """Whether the backend's form of a graph gives other results; one that it refuses to compile is not wrong."""
    with torch.random.fork_rng():
        state = torch.get_rng_state()
        expected = list(tensors_in(fx.Interpreter(gm).run(*copies(inputs))))
        torch.set_rng_state(state)
        mode = FakeTensorMode(shape_env=ShapeEnv())
        fakes = [mode.from_tensor(value, static_shapes=True) if isinstance(value, torch.Tensor) else value
                 for value in inputs]
        try:
            compiled = compile_graph(copy_of(gm), fakes, settings, mode, torch.is_grad_enabled())
        except BackendError:
            return False
        actual = list(tensors_in(compiled(*copies(inputs))))
    return len(expected) != len(actual) or any(unlike(a.detach(), b.detach(), exact) or a.shape != b.shape
                                               for a, b in zip(expected, actual, strict=True))


def smallest_wrong(gm: fx.GraphModule, inputs: tuple[Any, ...], settings: Settings,
                   exact: bool) -> tuple[fx.Node | None, fx.GraphModule, tuple[Any, ...]] | None:
    """(operation, the smallest wrong graph, its inputs), or None where the graph is compiled right."""
    if not is_wrong(gm, inputs, settings, exact):
        return None
    nodes = [node for node in gm.graph.nodes if node.op.startswith("call")]
    low, high = 0, len(nodes)  # the first `high` are wrong, or the whole is
    while low + 1 < high:
        middle = (low + high) // 2
        if is_wrong(copy_of(gm, nodes[middle - 1]), inputs, settings, exact):
            high = middle
        else:
            low = middle
    node = nodes[high - 1]
    if not is_wrong(copy_of(gm, node), inputs, settings, exact):
        return None, gm, inputs  # only the whole shows it
    alone, given = one_operation(gm, node, inputs)
    if is_wrong(alone, given, settings, exact):
        return node, alone, given
    cone = copy_of(gm, node, only=True)
    return node, cone if is_wrong(cone, inputs, settings, exact) else copy_of(gm, node), inputs


def one_operation(gm: fx.GraphModule, node: fx.Node, inputs: tuple[Any, ...]) -> tuple[fx.GraphModule, tuple[Any, ...]]:
    """A graph of one operation, whose inputs are what the operation gets in the whole graph."""
    values: dict[fx.Node, Any] = {}

    class Keeper(fx.Interpreter):
        def run_node(self, each: fx.Node) -> Any:
            if each is node:
                values.update({argument: copies((self.env[argument],))[0] for argument in node.all_input_nodes})
            return super().run_node(each)

    Keeper(gm).run(*copies(inputs))
    graph = fx.Graph()
    made = {argument: graph.placeholder(argument.name) if argument.op != "get_attr" else graph.get_attr(argument.target)
            for argument in node.all_input_nodes}
    copied = graph.node_copy(node, lambda each: made[each])
    copied.meta = {"stack_trace": node.meta.get("stack_trace")}
    graph.output((copied,))
    given = tuple(values[argument] for argument in node.all_input_nodes if argument.op != "get_attr")
    return fx.GraphModule(gm, graph), given


def place_of_node(node: fx.Node | None) -> tuple[str, int] | None:
    """The program's innermost line of a node's stack trace."""
    lines = ((node.meta.get("stack_trace") if node is not None else None) or "").strip().splitlines()
    for text in reversed(lines):
        if text.strip().startswith('File "'):
            filename, _, rest = text.strip()[6:].partition('", line ')
            return filename, int(rest.partition(",")[0])
    return None
