"""Numbers of inputs as symbols, and numbers computed by operators.   k[:, :end.item()]  ->  s0 + 8, s0 read at entry

Out: a symbolic int for an element of an integer input on the CPU, or sums and products of such, where the policy finds
that its values change; else None.  Such a symbol has a value while tracing: a branch on it is a guard.  Operators of
Stator (csrc/number_operators.cpp) compute slice bounds and floats: Inductor makes no CPU kernel of them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch._library import simple_registry
from torch._subclasses.fake_tensor import FakeTensor

from stator import _core  # which defines the operators
from stator.graph.services import Recorder
from stator.graph.values.branch_guards import NotKnown
from stator.graph.values.known_values import KnownValues, is_small
from stator.shapes.symbolic_values import is_unbacked
from stator.source import CALL_TEXTS, CallOf, Pinned

LARGEST = 1 << 31  # of an element; beyond, arithmetic might leave the 64 bits of tensors
LARGEST_SIZE = 1 << 47  # what fits in memory
SUMS = {"add": 1, "__add__": 1, "__radd__": 1, "sub": -1, "__sub__": -1}
_PRODUCTS = frozenset({"mul", "__mul__", "__rmul__"})
_COMPARISONS = {text: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")
                for text in (name, f"__{name}__")}
_SAME = frozenset({"detach", "clone", "contiguous"})
SLICE_BOUND = torch.ops.stator.slice_bound.default
ITEM_OF_SUM = torch.ops.stator.item_of_sum.default
FLOAT_ADD, FLOAT_SUB = torch.ops.stator.float_add.default, torch.ops.stator.float_sub.default
FLOAT_MUL = torch.ops.stator.float_mul.default
LARGEST_ADDED = 1 << 62  # of a number that is added: minus it fits in 64 bits as well


CALL_TEXTS[id(_core.tensor_item)] = lambda tensor, place: (
    f"{tensor}.item()" if place == "0" else f"{tensor}.view(-1)[{place}].item()")


class InputItems:
    """The elements of one recorder's inputs that have become symbols."""

    def __init__(self, recorder: Recorder, known: KnownValues) -> None:
        self.recorder, self.known = recorder, known
        self.may_open: Callable[[Any], bool] = lambda graph_input: False
        self.declined = False  # whether the policy kept a number from being a symbol
        self._symbols: dict[tuple[fx.Node, int], Any] = {}

    def number_of(self, fake: FakeTensor) -> Any:
        """The symbol for a tensor's only element, or None."""
        if self.recorder.scope.enclosing is not None:
            return None
        try:
            with torch._C.DisableTorchFunction():
                root = self.recorder.node_of(fake)
                inputs: list[Any] = []
                if self._expression(root, inputs.append) is None:
                    return None
                if not all(map(self.may_open, inputs)):
                    self.declined = True
                    return None
                if self.known.slice_of(root)[1]:
                    return None  # written to on the way: the input holds another number by then
                found = self._expression(root)
        except NotKnown:
            return None
        return None if found is None or found[1] >= 1 << 62 else found[0]

    def truth_of(self, fake: FakeTensor) -> bool | None:
        """Whether a tensor of one element is true, where inputs that have changed decide it; a guard asks again."""
        node = self.recorder.node_of(fake)
        if self.recorder.scope.enclosing is not None or node.kwargs:
            return None
        name = node.target if type(node.target) is str else getattr(node.target, "__name__", "")
        asked = _COMPARISONS.get(name) if len(node.args) == 2 else None
        operands = node.args if asked is not None else (node, 0)
        inputs: list[Any] = []
        try:
            with torch._C.DisableTorchFunction():
                if any([size != 1 for size in fake.shape]) \
                        or any([self._operand(each, inputs.append) is None for each in operands]) \
                        or not inputs or not all(map(self.may_open, inputs)) or self.known.slice_of(node)[1]:
                    return None
                left, right = (self._operand(each, None) for each in operands)
        except NotKnown:
            return None
        if left is None or right is None or max(left[1], right[1]) >= 1 << 62:
            return None
        return bool((asked or operator.ne)(left[0], right[0]))

    def _expression(self, node: fx.Node, seen: Callable[[Any], None] | None = None) -> tuple[Any, int] | None:
        """The number a node makes, and a bound of its size; with `seen`, only which inputs it is made of."""
        made = node.meta.get("example_value")
        if type(made) is not FakeTensor or made.device.type != "cpu":
            return None
        element = self._element(node)
        if element is not None:
            if seen is not None:
                seen(element[0])
                return 0, LARGEST
            return self._symbol(*element), LARGEST
        if made.dtype is not torch.int64 or node.kwargs or not node.args:
            return None
        name = node.target if type(node.target) is str else getattr(node.target, "__name__", "")
        if name in _SAME and len(node.args) == 1:
            return self._operand(node.args[0], seen)
        if name not in SUMS and name not in _PRODUCTS or len(node.args) != 2:
            return None
        left, right = (self._operand(argument, seen) for argument in node.args)
        if left is None or right is None:
            return None
        if name in _PRODUCTS:
            return left[0] * right[0], left[1] * right[1]
        return left[0] + SUMS[name] * right[0], left[1] + right[1]

    def _operand(self, argument: Any, seen: Callable[[Any], None] | None) -> tuple[Any, int] | None:
        if type(argument) is int:
            return (argument, abs(argument)) if abs(argument) < LARGEST else None
        if type(argument) is not fx.Node:
            return None
        made = argument.meta.get("example_value")
        if type(made) is torch.SymInt and not is_unbacked(made):
            return made, LARGEST_SIZE
        return self._expression(argument, seen) if type(made) is FakeTensor and made.dtype is torch.int64 else None

    def _element(self, node: fx.Node) -> tuple[Any, int] | None:
        """The input of which a node is one element, and its place in reading order."""
        index: list[int] = []
        while node.op != "placeholder":
            name = node.target if type(node.target) is str else getattr(node.target, "__name__", "")
            if name == "select" and len(node.args) == 3 and node.args[1] == 0:
                step: Any = node.args[2]
            elif name == "getitem" and len(node.args) == 2:
                step = node.args[1]
            else:
                return None
            if type(step) is not int or type(node.args[0]) is not fx.Node:
                return None
            index.insert(0, step)
            node = node.args[0]
        found = next((each for each in self.recorder.inputs if each.node is node), None)
        if found is None or not is_small(found.tensor) or found.tensor.dtype is torch.bool:
            return None
        sizes = tuple(found.fake.shape)
        if any(type(size) is not int for size in sizes):
            return None
        if not index and found.tensor.numel() == 1:
            return found, 0
        if len(index) != len(sizes):
            return None
        place = 0
        for step, size in zip(index, sizes, strict=True):
            if not -size <= step < size:
                return None
            place = place * size + step % size
        return found, place

    def _symbol(self, graph_input: Any, place: int) -> Any:
        key = graph_input.node, place
        if key not in self._symbols:
            number = _core.tensor_item(graph_input.tensor, place)
            if abs(number) >= LARGEST:
                raise NotKnown
            source = CallOf(Pinned(_core.tensor_item), (graph_input.source, Pinned(place)))
            symbol = self.recorder.add_number(number, source)
            assert bool(symbol < LARGEST) and bool(symbol > -LARGEST)  # two guards
            self._symbols[key] = symbol
            self.known.read.add(graph_input.node)
        return self._symbols[key]


def _fake_bound(origin: torch.Tensor, place: object, size: object, least: object) -> Any:
    """A slice bound as Python reads it: negative from the end, never beyond either end, nor below `least`."""
    bound = torch.library.get_ctx().new_dynamic_size()
    torch._check(bound >= least)
    torch._check(bound <= size)
    return bound


_FAKES: dict[str, Any] = {
    "slice_bound": _fake_bound,
    "item_of_sum": lambda element, number: torch.library.get_ctx()._shape_env.create_unbacked_symint(),
    **dict.fromkeys(("float_add", "float_sub", "float_mul"),
                    lambda left, right: torch.empty((), dtype=torch.float64, device="cpu"))}
_library = torch.library.Library("stator", "FRAGMENT")
for _name, _fake in _FAKES.items():  # torch.library.register_fake searches all modules for the one that calls it
    simple_registry.singleton.find(f"stator::{_name}").fake_impl.register(_fake, __file__, _library)


def item_of_sum(recorder: Recorder, fake: FakeTensor) -> Any:
    """The number in a sum of an element and a constant, without the tensor in between; None where it is none."""
    if recorder.scope.enclosing is not None or not recorder.scope.data_dependent \
            or recorder.items.number_of(fake) is not None:
        return None
    node = recorder.node_of(fake)
    try:
        with torch._C.DisableTorchFunction():
            found = _sum_of(node)
            if found is None or recorder.known.slice_of(node)[1]:
                return None  # what was written to since holds another number by now
    except NotKnown:
        return None
    place = recorder.graph, node
    if place not in recorder.slice_bounds:
        recorder.slice_bounds[place] = recorder.call(ITEM_OF_SUM, found, {})
    return recorder.slice_bounds[place]


def element_behind(recorder: Recorder, number: Any) -> FakeTensor | None:
    """The tensor out of which the graph reads a number."""
    if recorder.scope.enclosing is not None or type(number) is not torch.SymInt:
        return None
    node, path = recorder.symbols.definitions.get(number.node.expr, (None, ()))
    return None if node is None or path else _fake_of(node.args[0])


def _sum_of(node: fx.Node) -> tuple[FakeTensor, int] | None:
    """The element and the constant that a node adds, where both it and the element are 64-bit numbers on the CPU."""
    name = node.target if type(node.target) is str else getattr(node.target, "__name__", "")
    sign = SUMS.get(name)
    if sign is None or node.kwargs or len(node.args) != 2 or not _is_number(_fake_of(node)):
        return None
    element, number = node.args
    if sign == 1 and type(element) is int:
        element, number = number, element
    fake = _fake_of(element)
    if fake is None or type(number) is not int or abs(number) > LARGEST_ADDED or not _is_number(fake):
        return None
    return fake, sign * number


def _fake_of(node: fx.Node) -> FakeTensor | None:
    made = node.meta.get("example_value") if type(node) is fx.Node else None
    return made if type(made) is FakeTensor else None


def _is_number(made: FakeTensor | None) -> bool:
    return made is not None and made.dtype is torch.int64 and made.device.type == "cpu" and made.dim() == 0
