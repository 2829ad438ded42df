"""Graph modules, and functions that run a graph node by node.   fx.Graph  ->  fx.GraphModule, or a Python function

    v1 = (v0) * (0.5); v0 = None
    v2 = layer_0(v1, p0, p1)          a stretch recorded again for other layers (`Play`), written once
"""

from __future__ import annotations

import linecache
import math
import operator
import weakref
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx
from torch.fx._lazy_graph_module import _LazyGraphModule

from stator.graph.fx.nodes import Play, Stretch, method_of_node

FILENAME = "<stator graph>"
TEXT = "_text"  # the global that holds the text of a generated function
STANDING = "_standing"  # the global that holds where the program stands, line by line (see `standing`)
AT = "at"  # in a node's metadata: the offset of the instruction that made it
NAMED_REGION = "named_region"  # the marked call around a node, which is compiled as one piece
_OPS = frozenset({"placeholder", "call_function", "call_method", "output"})
_OPERATORS = {id(function): symbol for function, symbol in {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/", operator.floordiv: "//",
    operator.mod: "%", operator.pow: "**", operator.matmul: "@", operator.lt: "<", operator.le: "<=",
    operator.gt: ">", operator.ge: ">=", operator.eq: "==", operator.ne: "!="}.items()}
_PLAIN = frozenset({int, bool, str, type(None), type(...)})
_located: weakref.WeakSet[fx.GraphModule] = weakref.WeakSet()  # whose errors are raised as they are
_plays: weakref.WeakKeyDictionary[fx.GraphModule, list[Play]] = weakref.WeakKeyDictionary()


class NotStraight(Exception):
    """The graph needs FX's own code: it refers to inner graphs."""


class Source:
    """The text of functions, and what their names stand for."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        self.known: dict[int, str] = {}

    def constant(self, value: object, prefix: str = "c") -> str:
        name = self.known.get(id(value))
        if name is None:
            name = self.known[id(value)] = f"{prefix}{len(self.names)}"
            self.names[name] = value  # which also keeps its id
        return name

    def text(self, value: Any, names: dict[fx.Node, str]) -> str:
        cls = type(value)
        if cls is fx.Node:
            return names[value]
        if cls in _PLAIN or cls is float and math.isfinite(value):
            return repr(value)
        if issubclass(cls, tuple):
            inside = ", ".join([self.text(item, names) for item in value])
            if hasattr(cls, "_fields"):
                return f"{self.constant(cls, 'c')}({inside})"
            return f"({inside},)" if len(value) == 1 else f"({inside})"
        if issubclass(cls, list):
            return f"[{', '.join([self.text(item, names) for item in value])}]"
        if issubclass(cls, dict):
            return "{" + ", ".join(f"{k!r}: {self.text(v, names)}" for k, v in value.items()) + "}"
        if cls is slice:
            return f"slice({', '.join([self.text(p, names) for p in (value.start, value.stop, value.step)])})"
        return self.constant(value)

    def call(self, node: fx.Node, names: dict[fx.Node, str]) -> str:
        args = [self.text(arg, names) for arg in node.args]
        args += [f"{key}={self.text(arg, names)}" for key, arg in node.kwargs.items()]
        if node.op == "call_method" and (method := method_of_node(node)) is not None:
            return f"{self.constant(method, 'f')}({', '.join(args)})"
        if node.op == "call_method":
            return f"{args[0]}.{node.target}({', '.join(args[1:])})"
        if (symbol := _OPERATORS.get(id(node.target))) is not None and len(node.args) == len(args) == 2:
            return f"({args[0]}) {symbol} ({args[1]})"
        return f"{self.constant(node.target, 'f')}({', '.join(args)})"


def last_uses(steps: list[tuple[fx.Node, list[fx.Node]]]) -> dict[fx.Node, list[fx.Node]]:
    """For each step, the values that nobody needs after it."""
    seen: set[fx.Node] = set()
    found: dict[fx.Node, list[fx.Node]] = {}
    for node, used in reversed(steps):
        dying = [each for each in dict.fromkeys(used) if each not in seen]
        seen.update(dying)
        found[node] = dying
    return found


def function(graph: fx.Graph, plays: list[Play], located: bool = False) -> Any:
    """The graph as a function of its inputs, that answers the tuple of its outputs; `located`: with `STANDING`."""
    source = Source()
    played = {play.copies[0]: play for play in plays if play.copies}
    steps: list[tuple[Any, list[fx.Node], Play | None]] = []
    inputs: list[fx.Node] = []
    node = graph._root.next
    while node.op != "root":
        if node.op not in _OPS:
            raise NotStraight
        play = played.get(node)
        if play is not None:
            for copy in play.copies:
                if node is not copy:
                    raise NotStraight
                node = node.next
            steps.append((play.copies[-1], play.inputs, play))
            continue
        if node.op == "placeholder":
            inputs.append(node)
        else:
            steps.append((node, node.all_input_nodes, None))
        node = node.next
    names = {each: f"v{number}" for number, each in enumerate(inputs)}
    dying = last_uses([(each, used) for each, used, _ in steps])
    lines = [f"def graph({', '.join(names.values())}):"]
    inner: dict[int, str] = {}
    texts: list[str] = []
    for each, _, play in steps:
        if play is not None:
            lines.append(play_line(source, play, names, inner, texts))
        elif each.op == "output":
            lines.append(f"    return {source.text(each.args[0], names)}")
            break
        else:
            text = source.call(each, names)
            names[each] = f"v{len(names)}"
            lines.append(f"    {names[each]} = {text}")
        gone = [names[value] for value in dying[each]]
        if gone:
            lines[-1] += f"; {' = '.join(gone)} = None"
    if located:
        source.names[STANDING] = standing(texts, [play or each for each, _, play in steps])
    source.names[TEXT] = "\n".join([*texts, *lines])
    exec(compile(source.names[TEXT], FILENAME, "exec"), source.names)  # noqa: S102  our own text
    return source.names["graph"]


def standing(texts: list[str], steps: list[Any]) -> dict[int, Any]:
    """Line -> stack trace and offset of its node; of a stretch, those of its nodes; inside one, an index."""
    found: dict[int, Any] = {}
    inside = 0
    for number, line in enumerate(texts, 1):
        inside = 0 if line.startswith("def ") else inside + 1
        found[number] = inside - 1
    for number, step in enumerate(steps, len(texts) + 2):
        found[number] = [stands(each) for each in step.copies] if type(step) is Play else stands(step)
    return found


def stands(node: fx.Node) -> tuple[str, int | None]:
    return node.meta.get("stack_trace") or "", node.meta.get(AT)


def play_line(source: Source, play: Play, names: dict[fx.Node, str], inner: dict[int, str], texts: list[str]) -> str:
    """The call of the function that a stretch has become."""
    wanted = tuple(play.copies.index(each) for each in play.outputs)
    name = inner.get(id(play.stretch))
    if name is None:
        name = inner[id(play.stretch)] = f"layer_{len(inner)}"
        texts += stretch_lines(source, name, play.stretch, wanted)
    elif play.stretch.wanted != wanted:
        raise NotStraight
    for each in play.outputs:
        names[each] = f"v{len(names)}"
    left = ", ".join([names[each] for each in play.outputs])
    call = f"{name}({', '.join([names[each] for each in play.inputs])})"
    return f"    {left}{',' if len(wanted) == 1 else ''} = {call}" if left else f"    {call}"


def stretch_lines(source: Source, name: str, stretch: Stretch, wanted: tuple[int, ...]) -> list[str]:
    stretch.wanted = wanted
    nodes = [step[0] for step in stretch.steps]
    names = {each: f"v{number}" for number, each in enumerate(stretch.outer)}
    lines = [f"def {name}({', '.join(names.values())}):"]
    results = [nodes[number] for number in wanted]
    dying = last_uses([(node, node.all_input_nodes) for node in nodes])
    for node in nodes:
        text = source.call(node, names)
        names[node] = f"v{len(names)}"
        lines.append(f"    {names[node]} = {text}")
        gone = [names[value] for value in dying[node] if value not in results]
        if gone:
            lines[-1] += f"; {' = '.join(gone)} = None"
    lines.append(f"    return ({''.join([f'{names[each]}, ' for each in results])})")
    return lines


class PlainCall:
    """Call a graph module without fx's text about errors: the program may catch them; eager prints nothing."""

    def __init__(self, cls: type) -> None:
        self.cls: Any = cls

    def __call__(self, module: object, *args: object, **kwargs: object) -> Any:
        return super(self.cls, module).__call__(*args, **kwargs)  # type: ignore[misc]


class InnerGraphModule(fx.GraphModule):
    """A graph that an operator of another graph calls, or a part of a graph."""

    def recompile(self) -> Any:
        type(self)._wrapped_call = PlainCall(type(self))  # type: ignore[attr-defined]
        return super().recompile()


class LateGraphModule(_LazyGraphModule):
    """A graph module whose code is written at its first read."""

    __jit_unused_properties__ = [*fx.GraphModule.__jit_unused_properties__, "code"]  # a backend may script it

    def _real_recompile(self) -> Any:
        type(self)._wrapped_call = PlainCall(type(self))  # type: ignore[attr-defined]
        made = super()._real_recompile()
        weakref.finalize(self, _forget_source, type(self).forward.__code__.co_filename)
        return made


def _root(held: Mapping[str, fx.GraphModule | torch.Tensor]) -> torch.nn.Module:
    root = torch.nn.Module()
    for name, value in held.items():
        setattr(root, name, value)
    return root


def make_captured(graph: fx.Graph, inner: Mapping[str, fx.GraphModule | torch.Tensor], plays: list[Play]
                  ) -> fx.GraphModule:
    """The graph of a whole segment; no code yet."""
    made = LateGraphModule(_root(inner), graph)
    _plays[made] = plays
    if inner:
        tell_sources(made)
    return made


def locate_errors(module: fx.GraphModule) -> None:
    """Keep where each node stands in the program once the graph runs."""
    _located.add(module)


def tell_sources(module: fx.GraphModule, within: tuple[tuple[str, Any], ...] = ()) -> None:
    """Say of the nodes of inner graphs which operations they are part of, as torch's matchers of patterns need it."""
    for node in module.graph.nodes:
        if "call" in node.op:
            stack = (*within, (node.name, node.target))
            node.meta["source_fn_stack"] = list(stack)
            for each in node.all_input_nodes:
                part = getattr(module, each.target) if each.op == "get_attr" else None
                if isinstance(part, fx.GraphModule):
                    tell_sources(part, stack)


def straight_function(module: fx.GraphModule, located: bool = False) -> Any:
    """A function that runs the graph node by node; `located`: tracebacks lead from its lines to its nodes."""
    try:
        return function(module.graph, _plays.get(module, []), located or module in _located)
    except NotStraight:
        _LazyGraphModule.force_recompile(module)
        return module.forward


def write_code(module: fx.GraphModule) -> None:
    _LazyGraphModule.force_recompile(module)


def make_graph_module(graph: fx.Graph, inner: Mapping[str, fx.GraphModule | torch.Tensor]) -> fx.GraphModule:
    module = InnerGraphModule(_root(inner), graph)
    weakref.finalize(module, _forget_source, module.forward.__code__.co_filename)
    return module


def _forget_source(filename: str) -> None:
    """torch.fx keeps the text of every graph for tracebacks, for ever."""
    linecache.cache.pop(filename, None)
    fx.graph_module._loader.eval_cache.pop(filename, None)
