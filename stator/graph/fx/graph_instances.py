"""Graphs that are the same but for sizes.   a graph for batches of n, and one for batches of 1  ->  one compiled graph

In: a captured graph and the places of its symbols (`describe_graph`); later another graph.  Out: whether the second is
the first with other sizes put in (`is_instance`).  Views are not compared: operations that give a view or
a copy, by strides, are followed by no write in a described graph, and lead to none of its results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from stator.graph.analysis.may_fail import CAUGHT
from stator.graph.analysis.mutation import UNREPEATABLE, WRITTEN, reached
from stator.graph.fx.graph_modules import AT, NAMED_REGION
from stator.guards.shape_check import Operand, Property
from stator.shapes.symbolic_values import SYMBOLIC
from stator.source import Source

_SEQUENCES = (tuple, list)
# Compared, or not to be compared:
_TOLD = frozenset({"example_value", "stack_trace", "source", "source_fn_stack", "unbacked_bindings", CAUGHT,
                   WRITTEN, UNREPEATABLE, AT, NAMED_REGION})
_COPIES_OR_VIEWS = frozenset({
    "contiguous", "reshape", "reshape_as", "flatten", "ravel", "einsum", "pixel_shuffle", "pixel_unshuffle",
    "channel_shuffle", "native_channel_shuffle",
})
_VIEWS = frozenset({
    "view", "view_as", "transpose", "permute", "t", "getattr", "unsqueeze", "squeeze", "expand", "expand_as", "getitem",
    "select", "narrow", "chunk", "split", "tensor_split", "unbind", "diagonal", "movedim", "moveaxis", "swapaxes",
    "swapdims", "detach", "unfold", "as_strided", "real", "imag", "view_as_real", "view_as_complex", "dropout",
    "unflatten", "positive", "alias", "to", "type", "type_as", "float", "double", "half", "bfloat16", "int", "long",
    "bool", "cpu", "cuda", "broadcast_to", "broadcast_tensors", "meshgrid", "adjoint", "hsplit", "vsplit", "dsplit",
    "atleast_1d", "atleast_2d", "atleast_3d", "conj", "mT", "T", "mH", "H", "resolve_conj",
    "resolve_neg", "split_with_sizes",
})
_IDLE = frozenset({"expand"})
_PLAIN = frozenset({str, int, bool, complex, type(None), torch.device, torch.dtype, range})


class _Unlike(Exception):
    """The graphs differ, or cannot be compared."""


@dataclass(frozen=True)
class Number:
    """A size, or a number computed from sizes."""

    expression: Any


@dataclass(frozen=True)
class Made:
    """A result of an earlier step."""

    step: int


@dataclass(frozen=True)
class Layout:
    """One tensor: its facts, its sizes and strides."""

    facts: tuple[Any, ...]
    sizes: tuple[Number, ...]
    strides: tuple[Number, ...]


@dataclass(frozen=True)
class Step:
    """One node that is no number."""

    op: str
    target: Any
    arguments: Any
    result: Any
    marks: tuple[tuple[str, Any], ...]
    same_as: int  # the first step with this very tensor: dropout gives back what it got, where it has nothing to do


@dataclass(frozen=True)
class Description:
    """A graph before its backend may change it."""

    inputs: tuple[tuple[Source, bool], ...]
    steps: tuple[Step, ...]
    origins: dict[sympy.Symbol, Operand]


def describe_graph(graph: fx.Graph, inputs: list[Any], symbols: Any, writes: bool) -> Description | None:
    """None where a graph cannot be compared: it has graphs inside, or numbers that only it knows."""
    if symbols.has_fresh or writes and any(map(_copies_or_views, graph.nodes)) or _shows_copy_or_view(graph):
        return None
    try:
        steps = _Steps()
        for node in graph.nodes:
            steps.add(node)
    except _Unlike:
        return None
    named = tuple((each.source, each.boxed) for each in inputs)
    return Description(named, tuple(steps.made), dict(symbols.origins))


def is_instance(general: Description, special: Description, inputs: list[Any], symbols: Any) -> bool:
    """Whether `special`, the graph being made now from these inputs, is `general` at the sizes of this call."""
    if general.inputs != special.inputs:
        return False
    places = {each.source: each.fake for each in inputs}
    numbers = {source: value for value, source in symbols.numbers.values()}
    try:
        found = {symbol: _at(operand, places, numbers) for symbol, operand in general.origins.items()}
        return _Match(general, special, found, symbols.shape_env.replace).holds()
    except (_Unlike, KeyError):
        return False


def _at(operand: Operand, places: dict[Source, Any], numbers: dict[Source, Any]) -> Any:
    """The value now at the place where a symbol of the other graph is read."""
    if operand.property in (Property.NUMBER, Property.REAL):
        return _expression(numbers[operand.source])
    fake = places[operand.source]
    if not isinstance(fake, torch.Tensor):  # a number stands there now
        raise _Unlike
    with torch._C.DisableTorchFunction():
        if operand.property in (Property.SIZE, Property.STRIDE) and operand.index >= fake.dim():
            raise _Unlike
        if operand.property is Property.SIZE:
            return _expression(fake.shape[operand.index])
        if operand.property is Property.STRIDE:
            return _expression(fake.stride()[operand.index])
        return _expression(fake.storage_offset())


def _expression(value: Any) -> Any:
    return value.node.expr if type(value) in SYMBOLIC else sympy.sympify(value)


def _copies_or_views(node: fx.Node) -> bool:
    return _name(node) in _COPIES_OR_VIEWS or node.kwargs.get("memory_format") is not None


def may_view(node: fx.Node) -> bool:
    return _copies_or_views(node) or _name(node) in _VIEWS


def _shows_copy_or_view(graph: fx.Graph) -> bool:
    """Whether a result of the graph is, or is a view of, what may be a view of something else, or a copy."""
    shown = [node for output in graph.nodes if output.op == "output" for node in output.all_input_nodes]
    return any(map(_copies_or_views, reached(shown, lambda node: node.all_input_nodes
                                             if _name(node) in _VIEWS else ())))


def _name(node: fx.Node) -> str:
    if node.op == "call_function" and node.target is getattr:
        return "getattr"
    return node.target if type(node.target) is str else getattr(node.target, "__name__", "")


class _Steps:
    """The steps of a graph, in order."""

    def __init__(self) -> None:
        self.made: list[Step] = []
        self.numbered: dict[fx.Node, int] = {}
        self.first: dict[int, int] = {}

    def add(self, node: fx.Node) -> None:
        example = node.meta.get("example_value")
        if type(example) in SYMBOLIC and node.op != "placeholder":
            return
        if node.op in ("get_attr", "call_module"):
            raise _Unlike
        self.numbered[node] = len(self.made)
        with torch._C.DisableTorchFunction():
            result = self.value(example)
        marks = tuple(sorted((key, value) for key, value in node.meta.items() if key not in _TOLD))
        target = None if node.op == "placeholder" else node.target
        same_as = len(self.made) if example is None else self.first.setdefault(id(example), len(self.made))
        self.made.append(Step(node.op, target, self.value((node.args, node.kwargs)), result, marks, same_as))

    def value(self, value: Any) -> Any:
        cls = type(value)
        if cls is fx.Node:
            example = value.meta.get("example_value")
            return Number(_expression(example)) if type(example) in SYMBOLIC else Made(self.numbered[value])
        if cls in SYMBOLIC or cls is int:
            return Number(_expression(value))
        if cls is FakeTensor:
            return self.layout(value)
        if issubclass(cls, _SEQUENCES):
            return (tuple if issubclass(cls, tuple) else list, *[self.value(item) for item in value])
        if issubclass(cls, dict):
            return (dict, *[(key, self.value(item)) for key, item in value.items()])
        if cls is slice:
            return (slice, *[self.value(item) for item in (value.start, value.stop, value.step)])
        return (float, value.hex()) if cls is float else (cls, value)

    def layout(self, fake: FakeTensor) -> Layout:
        if fake.layout is not torch.strided:
            raise _Unlike
        facts = (fake.dtype, fake.device, fake.requires_grad, fake.is_conj(), fake.is_neg(), fake.is_inference(),
                 fake.dim())
        return Layout(facts, tuple(map(self.value, fake.shape)), tuple(map(self.value, fake.stride())))


class _Match:
    """The comparison of a general graph, at the sizes of this call, with a special one."""

    def __init__(self, general: Description, special: Description, found: dict[sympy.Symbol, Any],
                 simplify: Callable[[Any], Any]) -> None:
        self.general, self.special, self.found, self.simplify = general, special.steps, found, simplify
        self.place: dict[int, int] = {}  # step of the general graph -> step of the special one that makes the same

    def holds(self) -> bool:
        special, number = self.special, 0
        for i, step in enumerate(self.general.steps):
            self.place[i] = number
            if number < len(special) and self.same(step, special[number]):
                number += 1
            elif not self.is_idle(i, step):
                return False
        return number == len(special)

    def is_idle(self, i: int, step: Step) -> bool:
        """Whether a step gives its tensor back as it was, at these sizes: an expand to the size there is."""
        operand = step.arguments[1][1] if len(step.arguments) > 1 and len(step.arguments[1]) > 1 else None
        if step.target not in _IDLE or type(operand) is not Made or step.marks:
            return False
        before = self.general.steps[operand.step].result
        if type(before) is not Layout or type(step.result) is not Layout or before.facts != step.result.facts:
            return False
        for size, stride, new_size, new_stride in zip(before.sizes, before.strides, step.result.sizes,
                                                      step.result.strides, strict=True):
            if self.put_in(size) != self.put_in(new_size):
                return False
            if self.put_in(size) != 1 and self.put_in(stride) != self.put_in(new_stride):
                return False
        self.place[i] = self.place[operand.step]
        return True

    def put_in(self, number: Number) -> Any:
        return self.simplify(number.expression.xreplace(self.found))

    def same(self, mine: Any, theirs: Any) -> bool:
        cls = type(mine)
        if cls is not type(theirs):
            return False
        if cls is Number:
            return bool(self.put_in(mine) == self.simplify(theirs.expression))
        if cls is Made:
            return self.special[self.place[mine.step]].same_as == self.special[theirs.step].same_as
        if cls is Step:
            return mine.op == theirs.op and _same_object(mine.target, theirs.target) and mine.marks == theirs.marks \
                and self.same(mine.arguments, theirs.arguments) and self.same(mine.result, theirs.result)
        if cls is Layout:
            return mine.facts == theirs.facts and self.same(mine.sizes, theirs.sizes) \
                and all(self.simplify(size.expression) == 1 or self.same(left, right)
                        for size, left, right in zip(theirs.sizes, mine.strides, theirs.strides, strict=True))
        if cls is tuple:
            return len(mine) == len(theirs) and all(map(self.same, mine, theirs))
        return _same_object(mine, theirs)


def _same_object(mine: object, theirs: object) -> bool:
    return mine is theirs or type(mine) is type(theirs) and type(mine) in _PLAIN and bool(mine == theirs)
