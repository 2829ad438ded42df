"""Compile a graph in pieces.   a graph with autograd boundaries  ->  compiled pieces between them

Out: a function that runs the compiled pieces and the boundaries in their order; autograd joins their backward graphs.
Each way of a branch is compiled apart.  A region of autocast with a boundary begins and ends between pieces.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._higher_order_ops.cond import cond_op
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from stator.backends.step_gradients import EngineGradients, take_gradients_between
from stator.graph.analysis.autograd_boundaries import BOUNDARY, InOnePiece, is_boundary
from stator.graph.analysis.mutation import WRITTEN_AROUND, reached, storage_of, written_storages
from stator.graph.analysis.step_functions import GRADIENTS
from stator.graph.fx.graph_modules import TEXT, InnerGraphModule, Source, last_uses
from stator.graph.state.torch_state import GRAD_MODE, SETTING_OF_SETTER
from stator.ranks.buckets import BUCKET

Compile = Callable[[fx.GraphModule, list[Any], bool], Callable[..., Any]]
FILENAME = "<stator pieces>"


@dataclass
class Piece:
    """Nodes between two boundaries, what they need from outside, and what is needed of them."""

    nodes: list[fx.Node] = field(default_factory=list)
    inputs: list[fx.Node] = field(default_factory=list)
    outputs: list[fx.Node] = field(default_factory=list)
    grad_enabled: bool = True
    settings: list[fx.Node] = field(default_factory=list)  # by which torch was set before this piece
    function: Any = None


@dataclass
class Branch:
    """A captured branch between two pieces."""

    node: fx.Node
    grad_enabled: bool
    settings: list[fx.Node]
    ways: tuple[Any, ...] = ()  # the compiled inner graphs: where the condition holds, and where it does not

    def run(self, condition: object, *args: object) -> object:
        return self.ways[0 if condition else 1](*args)  # type: ignore[no-any-return]


def compile_pieces(gm: fx.GraphModule, example_inputs: Sequence[Any], grad_enabled: bool, compile_piece: Compile
                   ) -> Callable[..., Any]:
    """`compile_piece` is called with each piece, its example inputs and the grad mode where it begins."""
    examples = dict(zip(gm.graph.find_nodes(op="placeholder"), example_inputs, strict=True))
    last = take_gradients_between(gm.graph)
    steps = cut(gm.graph, grad_enabled)
    written = written_around(gm.graph, steps, last)
    for step in steps:
        if type(step) is Piece:
            given = [examples.get(node, node.meta.get("example_value")) for node in step.inputs]
            require_apart(step, given)
            step.function = (step, given)
    for step in steps:
        if type(step) is Piece:
            with torch_set_by(step.settings):
                module, given = module_of(gm, step), step.function[1]
                module.meta[WRITTEN_AROUND] = next(written).intersection(map(storage_of, given))
                step.function = compile_piece(module, given, step.grad_enabled)
        elif type(step) is Branch:
            given = [node.meta.get("example_value") for node in step.node.args[3]]
            with torch_set_by(step.settings):
                step.ways = tuple([compile_piece(getattr(gm, way.target), given, step.grad_enabled)
                                   for way in step.node.args[1:3]])
    return runner(gm, steps)


def cut(graph: fx.Graph, grad_enabled: bool) -> list[Any]:
    keep_parts_together(graph)
    steps: list[Any] = []
    place: dict[fx.Node, int] = {}
    settings: dict[Any, fx.Node] = {}
    loose = settings_across_boundaries(graph, grad_enabled)
    numbers = numbers_of_inputs(graph)
    steps += numbers_between(graph, numbers)
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr", "output") or node in numbers:
            continue
        if is_boundary(node) or node.target is operator.getitem and is_boundary(node.args[0]):
            if node.meta.get("unbacked_bindings"):
                raise InOnePiece("a number that only an autograd boundary knows")
            steps.append(Branch(node, grad_enabled, list(settings.values())) if node.target is cond_op else node)
        elif node in loose:
            steps.append(node)  # between pieces, as a boundary is
        elif not steps or type(steps[-1]) is not Piece or BUCKET in node.meta:
            steps.append(Piece([node], grad_enabled=grad_enabled, settings=list(settings.values())))
        else:
            steps[-1].nodes.append(node)
        place[node] = len(steps) - 1
        setting = SETTING_OF_SETTER.get(id(node.target))
        if setting is not None:
            settings[setting, node.args[:setting.keys]] = node
            if node.target is torch._C._set_grad_enabled:
                grad_enabled = node.args[0]
    for number, step in enumerate(steps):
        if type(step) is Piece:
            step.nodes = [*chosen(numbers, step.nodes), *step.nodes]
            _find_ends(step, number, place, numbers)
    return steps


def numbers_of_inputs(graph: fx.Graph) -> dict[fx.Node, None]:
    """The floats that are read from inputs, which hold nothing else: each piece reads them itself."""
    found: dict[fx.Node, None] = {}
    for node in graph.nodes:
        if type(node.meta.get("example_value")) is torch.SymFloat and node.op.startswith("call_") \
                and "unbacked_bindings" not in node.meta and node.all_input_nodes and all(
                    each.op == "placeholder" or each in found for each in node.all_input_nodes):
            found[node] = None
    return found


def numbers_between(graph: fx.Graph, numbers: dict[fx.Node, None]) -> list[fx.Node]:
    """Those of them that boundaries and the caller need."""
    return chosen(numbers, [node for node in graph.nodes if is_boundary(node) or node.op == "output"])


def chosen(numbers: dict[fx.Node, None], users: Iterable[fx.Node]) -> list[fx.Node]:
    """The numbers that some nodes need, and those of which they are computed."""
    waiting = [each for user in users for each in user.all_input_nodes if each in numbers]
    needed = reached(waiting, lambda node: [each for each in node.all_input_nodes if each in numbers])
    return [node for node in numbers if node in needed]


def written_around(graph: fx.Graph, steps: list[Any], last: fx.Node | None) -> Iterator[set[int]]:
    """The memory written while values that each piece has saved may be needed; `last` consumes those before it."""
    everywhere = set().union(*map(written_storages, graph.nodes))
    before = steps.index(last) if last is not None else 0
    nodes = [node for step in steps[:before] for node in (
        step.nodes if type(step) is Piece else [step.node if type(step) is Branch else step])]
    so_far = set().union(*map(written_storages, nodes))
    for number, step in enumerate(steps):
        if type(step) is Piece:
            yield so_far if number < before else everywhere


def keep_parts_together(graph: fx.Graph) -> None:
    """Move parts of a result to it: tensors are handed on, not tuples."""
    for node in list(graph.nodes):
        if node.target is operator.getitem and type(node.args[0]) is fx.Node and type(node.args[1]) is int \
                and type(node.args[0].meta.get("example_value")) in (tuple, list):
            node.args[0].append(node)


def settings_across_boundaries(graph: fx.Graph, grad_enabled: bool) -> set[fx.Node]:
    """The nodes that change torch's settings in a stretch without autograd boundaries that does not set them back."""
    now: dict[Any, Any] = {}
    found: set[fx.Node] = set()
    stretch: list[fx.Node] = []
    began: dict[Any, Any] = {}
    for node in graph.nodes:
        if is_boundary(node) or node.op == "output" or BUCKET in node.meta:
            if any(now[key] != value for key, value in began.items()):
                found.update(stretch)
            stretch, began = [], {}
        elif node.target is torch.clear_autocast_cache:
            stretch.append(node)
        setting = SETTING_OF_SETTER.get(id(node.target))
        if setting is None:
            continue
        key = setting, node.args[:setting.keys]
        if key not in now:
            now[key] = (grad_enabled,) if setting is GRAD_MODE else setting.read(*key[1])
        if not is_boundary(node):
            began.setdefault(key, now[key])
            stretch.append(node)
        now[key] = node.args[setting.keys:]
    return found


@contextlib.contextmanager
def torch_set_by(nodes: list[fx.Node]) -> Iterator[None]:
    """Torch as these nodes of a graph leave it."""
    with settings_kept(nodes):
        for node in nodes:
            node.target(*node.args, **node.kwargs)  # type: ignore[operator]
        yield


@contextlib.contextmanager
def torch_set_to(state: dict[Any, Any]) -> Iterator[None]:
    with kept(state):
        for (setting, key), value in state.items():
            setting.setter(*key, *value)
        yield


def settings_kept(nodes: Iterable[fx.Node]) -> contextlib.AbstractContextManager[None]:
    """Restore the settings that these nodes of a graph change: a compiler that fails has run some of them."""
    return kept([(setting, node.args[:setting.keys]) for node in nodes
                 if (setting := SETTING_OF_SETTER.get(id(node.target))) is not None])


@contextlib.contextmanager
def kept(places: Iterable[Any]) -> Iterator[None]:
    before = {(setting, key): setting.read(*key) for setting, key in places}
    try:
        yield
    finally:
        for (setting, key), value in before.items():
            if value != (None,):  # else this build of torch has no such setting
                setting.setter(*key, *value)


def _find_ends(step: Piece, number: int, place: dict[fx.Node, int], numbers: dict[fx.Node, None]) -> None:
    for node in step.nodes:
        for each in node.all_input_nodes:
            if each.op != "get_attr" and place.get(each) != number and each not in step.inputs and each not in numbers:
                step.inputs.append(each)
        if node in numbers:
            continue
        if any(user.op == "output" or place[user] != number for user in node.users):
            if type(node.meta.get("example_value")) not in (FakeTensor, torch.SymInt):
                raise InOnePiece(f"an autograd boundary behind {node.name}, which is no tensor")
            if free_unbacked_symbols(node.meta["example_value"]):
                raise InOnePiece("unbacked symbols on both sides of an autograd boundary")
            step.outputs.append(node)


def require_apart(step: Piece, given: list[Any]) -> None:
    """Refuse writes of a piece to memory that its inputs hold under several names."""
    if any(value is None for value in given):
        raise InOnePiece("an autograd boundary before something that is no tensor")
    written = {memory for node in step.nodes for memory in written_storages(node)}
    changed = [value for value in given if storage_of(value) in written]
    if len({storage_of(value) for value in changed}) != len(changed):
        raise InOnePiece("an autograd boundary before a write to memory with several names")
    with torch._C.DisableTorchFunction():
        if any(value.requires_grad and not value.is_leaf for value in changed):
            raise InOnePiece("an autograd boundary before a write to what has a history")


def module_of(gm: fx.GraphModule, step: Piece) -> fx.GraphModule:
    graph = fx.Graph()
    known: dict[fx.Node, fx.Node] = {}

    def copied(node: fx.Node) -> fx.Node:
        if node not in known:  # an inner graph, which every piece names itself
            known[node] = graph.node_copy(node)
        return known[node]

    for node in step.inputs:
        known[node] = graph.placeholder(node.name)
        known[node].meta = {key: value for key, value in node.meta.items() if key not in (BOUNDARY, BUCKET)}
    for node in step.nodes:
        for each in node.all_input_nodes:
            copied(each)
        known[node] = graph.node_copy(node, copied)
        known[node].meta.pop(BUCKET, None)
    graph.output(tuple(known[node] for node in step.outputs))
    return InnerGraphModule(gm, graph)


def runner(gm: fx.GraphModule, steps: list[Any]) -> Callable[..., Any]:
    """One Python function, a line for each step; a value is let go where it is used last."""
    source = Source()
    inputs = gm.graph.find_nodes(op="placeholder")
    output = next(node for node in reversed(gm.graph.nodes) if node.op == "output")
    names = {node: f"v{number}" for number, node in enumerate(inputs)}
    lines = [f"def graph({', '.join(names.values())}):"]
    for node in gm.graph.find_nodes(op="get_attr"):
        if "." not in node.target:
            names[node] = source.constant(getattr(gm, node.target))
    kept = set(names)
    uses: list[tuple[Any, list[fx.Node]]] = [(number, inputs_of(step)) for number, step in enumerate(steps)]
    dying: dict[Any, list[fx.Node]] = last_uses([*uses, (None, output.all_input_nodes)])
    for number, step in enumerate(steps):
        made = step.outputs if type(step) is Piece else [step.node if type(step) is Branch else step]
        if type(step) is Piece:
            call = f"{source.constant(step.function, 'p')}({', '.join([names[node] for node in step.inputs])})"
        elif type(step) is Branch:
            call = f"{source.constant(step, 'p')}.run({', '.join([names[node] for node in inputs_of(step)])})"
        elif step.target in GRADIENTS:
            given = ", ".join([source.text(arg, names) for arg in step.args])
            call = f"{source.constant(EngineGradients(step), 'p')}({given})"
        else:
            call = source.call(step, names)
        for node in made:
            names[node] = f"v{len(names)}"
        left = "".join([f"{names[node]}, " for node in made]) if type(step) is Piece else names[made[0]]
        lines.append(f"    {left} = {call}" if left else f"    {call}")
        gone = [names[node] for node in dying[number] if node not in kept]
        lines[-1] += f"; {' = '.join(gone)} = None" if gone else ""
    lines.append(f"    return {source.text(output.args[0], names)}")
    source.names[TEXT] = "\n".join(lines)
    exec(compile(source.names[TEXT], FILENAME, "exec"), source.names)  # noqa: S102  our own text
    return source.names["graph"]  # type: ignore[no-any-return]


def inputs_of(step: Piece | Branch | fx.Node) -> list[fx.Node]:
    if isinstance(step, Branch):
        return [step.node.args[0], *step.node.args[3]]  # type: ignore[list-item, misc]
    return step.inputs if isinstance(step, Piece) else step.all_input_nodes
