"""The residual program.   what a finished trace left  ->  a Python function: call the graph, write back, rebuild

    def residual(x, self_weight):
        out = graph(x, self_weight)
        return out[0]
"""

from __future__ import annotations

import linecache
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from stator.emit.effects import write_effects
from stator.emit.rebuild import Rebuilder
from stator.emit.writer import Writer
from stator.source import Source


@dataclass
class Residual:
    """A residual program before its graph is compiled."""

    source: str
    names: dict[str, Any]
    wanted: list[Source]
    graph: fx.GraphModule | None
    graph_inputs: list[Any]
    effects: int = 0
    lines: list[str] = field(default_factory=list)

    def link(self, compiled: Any) -> Any:
        """The residual as a function, with the compiled graph bound to its name."""
        filename = f"<stator residual {id(self):x}>"
        namespace = {**self.names, "graph": compiled}
        exec(compile(self.source, filename, "exec"), namespace)  # noqa: S102  our own text, made above
        linecache.cache[filename] = (len(self.source), None, self.source.splitlines(True), filename)
        return namespace["residual"]


def emit_residual(vm: Any, result: Any, grad_at_start: bool) -> Residual:
    """Build the residual of a trace that returned `result`."""
    writer = Writer()
    writer._used.update({"out", "graph", "residual", "slice", "set", "setattr", "delattr", "float", "frozenset", "del"})
    build = Rebuilder(writer, vm.heap, vm.recorder, vm)
    recorder = vm.recorder
    value = build.value(result)
    effects = write_effects(build)
    lines = writer.lines
    needs_graph = recorder.calls > 0
    call: list[str] = []
    graph_module = None
    inputs: list[Any] = []
    if needs_graph:
        inputs = [i for i in recorder.inputs if i.node.users]
        for unused in [i for i in recorder.inputs if not i.node.users]:
            if not any(unused.fake is o for o in build.outputs):
                recorder.graph.erase_node(unused.node)
        names = [build.outside(i.source) for i in inputs]
        nodes = tuple(recorder.node_of(fake) for fake in build.outputs)
        recorder.graph.output(nodes)
        graph_module = make_graph_module(recorder.graph)
        call = [f"{'out = ' if nodes else ''}graph({', '.join(names)})"]
        if torch.is_grad_enabled() != grad_at_start:
            call.append(f"{writer.constant(torch._C._set_grad_enabled, 'set_grad_enabled')}({torch.is_grad_enabled()})")
    writer.lines = call + lines + [f"return {value}"]
    wanted = list(build.wanted)
    return Residual(writer.source("residual", list(build.wanted.values())), writer.names, wanted, graph_module,
                    inputs, effects, writer.lines)


def make_graph_module(graph: fx.Graph) -> fx.GraphModule:
    return fx.GraphModule(torch.nn.Module(), graph)
