"""Symbolic numbers in the graph.   2*s0 + u1  ->  nodes that compute it from sizes and items, each once

In: which node defines which symbol (the size of an input, the result of `.item()`).  Out: for any symbolic value
its node, made where it is first needed; a number where the expression has become one.
"""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy
import torch
from sympy.logic.boolalg import BooleanAtom
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch.fx.experimental import symbolic_shapes
from torch.fx.proxy import GraphAppendingTracer
from torch.overrides import _pop_mode_temporarily
from torch.utils import _pytree as pytree
from torch.utils._sympy.interp import _run_sympy_handler, sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

from stator.breaks import Break
from stator.guards.shape_check import Operand, Property
from stator.host.value_kinds import is_a
from stator.shapes.environment import TraceEnvironment
from stator.shapes.named_dimensions import Dim
from stator.shapes.symbolic_values import SYMBOLIC, UserPrinter, as_constant, hint_of, is_unbacked, specialise
from stator.source import Source

_NOTHING = contextlib.nullcontext()


class _ExampleTracer(GraphAppendingTracer):
    """Appends nodes whose example values are computed from those of their arguments."""

    def create_node(self, kind: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any],
                    *rest: object, **named: object) -> fx.Node:
        node = super().create_node(kind, target, args, kwargs, *rest, **named)
        examples = fx.map_arg(node.args, lambda argument: argument.meta.get("example_value"))
        node.meta["example_value"] = target(*examples)
        return node


_ATTENTION = torch.nn.functional.scaled_dot_product_attention
_OF_IMAGES = frozenset({torch.conv1d, torch.conv2d, torch.conv_transpose1d, torch.conv_transpose2d})
_CONVOLUTIONS = _OF_IMAGES | {torch.conv3d, torch.conv_transpose3d}


def _is_small_batch(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "cpu" and value.dim() > 2 \
        and type(value.shape[0]) is int and value.shape[0] < 16


def _require_filled(operands: Any) -> None:
    """Assert in the graph that no unbacked size of an operand is 0: kernels chosen for others would divide by it."""
    for operand in operands:
        for size in operand.shape if isinstance(operand, torch.Tensor) else ():
            if is_unbacked(size):
                symbolic_shapes.expect_true(size != 0)


def _is_contiguous(value: object) -> bool:
    """Whether a tensor lies contiguously, as far as its sizes are known; read without a guard."""
    if not isinstance(value, torch.Tensor):
        return False
    expected: Any = 1
    for size, stride in zip(reversed(value.shape), reversed(value.stride()), strict=True):
        extent = hint_of(size)
        if extent != 1 and (hint_of(stride) is None or hint_of(stride) != expected):
            return False
        # Behind an unbacked outermost size, nothing is compared any more.
        expected = None if extent is None or expected is None else expected * extent
    return True


def _called(function: Callable[[Any], Any]) -> Any:
    """A rounding of torch's analysis, as a node: on a proxy Python's own would answer at once."""
    def apply(value: object, dtype: torch.dtype | None = None) -> Any:
        if isinstance(value, fx.Proxy):
            return value.tracer.create_proxy("call_function", function, (value,), {})
        return function(value)
    return staticmethod(apply)


class _NodeAnalysis(PythonReferenceAnalysis):
    """How each operation of an expression is written into the graph."""

    sym_sum = staticmethod(torch.sym_sum)
    int_truediv = staticmethod(operator.truediv)

    @staticmethod
    def identity(value: object) -> Any:
        """A float that is closed to algebra (`values.in_order`)."""
        return value

    floor_to_int = _called(math.floor)
    ceil_to_int = _called(math.ceil)
    trunc_to_int = _called(math.trunc)
    round_to_int = _called(round)


def _shown(node: fx.Node) -> str:
    """The source of an argument, else the name of the node."""
    return node.meta["source"].text() if "source" in node.meta else node.name


def _forget_inner(env: symbolic_shapes.ShapeEnv, result: object) -> None:
    """Forget the symbols of steps inside of an operation that its result does not depend on.

    torch.combinations selects twice and stacks: two counts that it asserts to be equal, and one is in its result. The
    operation makes these assertions anew as it runs.
    """
    found = symbolic_shapes.compute_unbacked_bindings(env, result, peek=True) or {}
    inner = set(env.pending_fresh_unbacked_symbols) - found.keys()
    if not inner or inner & symbolic_shapes.free_unbacked_symbols(result):
        return
    env.pending_fresh_unbacked_symbols[:] = [each for each in env.pending_fresh_unbacked_symbols if each not in inner]
    for symbol, asserts in list(env.deferred_runtime_asserts.items()):
        asserts[:] = [each for each in asserts if not each.expr.free_symbols & inner]
        if not asserts:
            del env.deferred_runtime_asserts[symbol]


class SymbolNodes:
    """The symbols of one trace and the nodes of expressions over them."""

    def __init__(self, graph: fx.Graph, shape_env: Any) -> None:
        self.graph = graph
        self.shape_env = shape_env
        self.tracer = _ExampleTracer(graph)
        self.definitions: dict[sympy.Symbol, tuple[fx.Node, Any]] = {}  # symbol -> its node and the path from there
        self.known: dict[sympy.Basic, Any] = {}  # expression -> Proxy
        self.by_value: dict[int, tuple[fx.Node, Any]] = {}  # id of a symbolic value -> the very node that made it, it
        self.origins: dict[sympy.Symbol, Operand] = {}  # where guards read a symbol's value
        self.properties: list[tuple[Operand, Any, Any]] = []  # sizes and strides of inputs, their expressions, the line
        self.declared: list[tuple[Operand, Any, Any]] = []  # sizes that the user declared dynamic, and how
        self.named: dict[str, Any] = {}  # the first size of each declared name
        self.lines: dict[sympy.Symbol, Any] = {}  # the line that first read a symbol
        self.numbers: dict[sympy.Symbol, tuple[Any, Source]] = {}  # symbols that are Python numbers from outside
        self.add_number_input: Callable[[sympy.Symbol], fx.Node]  # set by the recorder
        self.has_fresh = False  # whether an operation made an unbacked number
        self.keeps_sizes = False  # whether a torch.Size goes to a function that may read its class

    def dispatcher(self) -> Any:
        """Once there are symbols, composite operators must run in Python: their C++ needs numbers."""
        return enable_python_dispatcher() if self.definitions or self.numbers else _NOTHING

    def sizes(self, items: tuple[Any, ...]) -> Any:
        """A torch.Size as an argument: a graph holds plain tuples only, and operators take them as well."""
        return self.graph.create_node("call_function", torch.Size, (items,), {}) if self.keeps_sizes else items

    def unasked(self, func: object, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Around a convolution or an attention: which of its kernels fits the present sizes is no fact.

        Rules for fakes need it because kernels may differ in their layouts; for contiguous operands they do not.
        """
        if func is _ATTENTION:
            _require_filled((*args, *kwargs.values()))
            return self.shape_env.any_kernel() if type(self.shape_env) is TraceEnvironment else _NOTHING
        if func not in _CONVOLUTIONS or not self.definitions:
            return _NOTHING
        operands = args[:2]
        if all(map(_is_contiguous, operands)) or func in _OF_IMAGES and _is_small_batch(operands[0]):
            return self.shape_env.suppress_guards()
        return _NOTHING

    def define_number(self, symbol: sympy.Symbol, value: object, source: Source, where: object) -> None:
        """An int or float from outside; it becomes an input of the graph where the graph uses it."""
        self.numbers[symbol] = (value, source)
        self.lines[symbol] = where
        if symbol in self.shape_env.backed_var_to_val:
            self.origins[symbol] = Operand(source, Property.NUMBER if type(value) is torch.SymInt else Property.REAL)

    def define_input(self, node: fx.Node, example: Any, source: Source, where: object) -> None:
        if not example._has_symbolic_sizes_strides:
            return
        strides = example.stride()
        for name, kind, parts in (("size", Property.SIZE, example.shape), ("stride", Property.STRIDE, strides)):
            for i, part in enumerate(parts):
                path: Any = (symbolic_shapes.CallMethodKey(name), pytree.SequenceKey(i))
                self._define_part(part, node, path, Operand(source, kind, i), where)
        path = (symbolic_shapes.CallMethodKey("storage_offset"),)
        self._define_part(example.storage_offset(), node, path, Operand(source, Property.STORAGE_OFFSET), where)

    def define_ragged(self, symbol: sympy.Symbol, node: fx.Node, path: object) -> None:
        """The ragged size of a jagged tensor: guards compare tensors for it, and no numbers."""
        self.definitions.setdefault(symbol, (node, path))

    def _define_part(self, part: Any, node: fx.Node, path: object, operand: Operand, where: object) -> None:
        if type(part) is not torch.SymInt:
            return
        expression = part.node._expr
        if isinstance(expression, sympy.Symbol):
            self.definitions.setdefault(expression, (node, path))
            if expression in self.shape_env.backed_var_to_val:
                self.origins.setdefault(expression, operand)
                self.lines.setdefault(expression, where)
        if expression.free_symbols <= self.origins.keys():
            self.properties.append((operand, expression, where))

    def asserted_of_inputs(self) -> dict[fx.Node, dict[sympy.Symbol, Any]]:
        """By input: its unbacked symbols that the program, or an operation, has asserted something of."""
        asserts = (each.expr for asserts in self.shape_env.deferred_runtime_asserts.values() for each in asserts)
        found: dict[fx.Node, dict[sympy.Symbol, Any]] = {}
        for symbol in dict.fromkeys(symbol for expression in asserts for symbol in expression.free_symbols):
            node, path = self.definitions.get(symbol, (None, None))
            if node is not None and node.op == "placeholder" and symbol not in self.shape_env.backed_var_to_val:
                found.setdefault(node, {})[symbol] = path
        return found

    def declare(self, operand: Operand, size: int, how: object) -> None:
        """A size or number that the user declared: by a mark, or as a Dim, whose name may have a size already."""
        if type(size) is not torch.SymInt:  # 0 or 1: a constant, as torch has it
            if isinstance(how, Dim):
                self.named.setdefault(how.name, size)
            return
        self.declared.append((operand, size, how if isinstance(how, Dim) else None))
        if not isinstance(how, Dim):
            return
        if operand.property is Property.NUMBER and how.min is not None:
            bool(size >= how.min)
        if operand.property is Property.NUMBER and how.max is not None:
            bool(size <= how.max)
        known = self.named.get(how.name)
        if type(known) is torch.SymInt:
            bool(known == size)  # a guard: one name is one size
        else:
            self.named[how.name] = size

    def take_fresh(self, result: object) -> Any:
        """Where in `result` the symbols lie that the operation just made; to be bound to its node."""
        if not self.shape_env.pending_fresh_unbacked_symbols:
            return None
        try:
            with torch._C.DisableTorchFunction():  # torch reads the layout: no operation of the program
                _forget_inner(self.shape_env, result)
                return symbolic_shapes.compute_unbacked_bindings(self.shape_env, result)
        except symbolic_shapes.PendingUnbackedSymbolNotFound as error:
            raise Break("SB003", f"a size that its operation does not give back: {error}".partition("\n")[0]) from None

    def define_fresh(self, node: fx.Node, bindings: Any, result: object) -> None:
        if bindings:
            self.has_fresh = True
            node.meta["unbacked_bindings"] = bindings
            for symbol, path in bindings.items():
                self.definitions.setdefault(symbol, (node, path))
        if type(result) in SYMBOLIC:
            self.remember(result, node)

    def remember(self, value: Any, node: fx.Node) -> None:
        """`node` computes this very value."""
        self.by_value[id(value)] = node, value
        if not isinstance(value.node.expr, (sympy.Number, BooleanAtom)):
            self.known.setdefault(value.node.expr, fx.Proxy(node, self.tracer))

    def in_words(self, expression: Any, written: Callable[[fx.Node], str]) -> str:
        """An expression as the user writes it: `n.item() > 2` for `u0 > 2`; empty where symbols lack names."""
        names = {symbol: sympy.Symbol(self._name(symbol, written)) for symbol in expression.free_symbols}
        if not all(symbol.name for symbol in names.values()) or len(set(names.values())) < len(names):
            return ""
        return str(UserPrinter().doprint(expression.xreplace(names))).replace("(-1)*", "-")

    def _name(self, symbol: sympy.Symbol, written: Callable[[fx.Node], str]) -> str:
        if symbol in self.origins:
            return self.origins[symbol].text()
        if symbol in self.numbers:
            return self.numbers[symbol][1].text().partition(" ")[0]  # of `random() 0`, the first draw
        if symbol not in self.definitions:
            return ""
        node, path = self.definitions[symbol]
        made = _shown(node)
        if "source" not in node.meta and (text := written(node)):
            if not path or isinstance(path[0], symbolic_shapes.ConvertIntKey):  # n.item(), of a bool too
                return text
            made = text
        for step in path:
            made += f".{step.name}" if isinstance(step, symbolic_shapes.CallMethodKey) else \
                f"({step.idx})" if made.endswith(".size") else f"[{getattr(step, 'idx', step)}]"
        return made

    def node_of(self, value: Any) -> Any:
        """The node of a symbolic value, or the number it has become."""
        constant = as_constant(value)
        if type(constant) not in SYMBOLIC:
            return constant
        made_by = self.by_value.get(id(value))
        if made_by is not None:
            return made_by[0]
        expression = next(filter(self.can_make, (value.node.expr, value.node._expr)), None)
        if expression is None:
            raise Break("SB003", "a number whose origin is not in the graph")
        try:
            # The tracer's mode would take the proxies for the program's values; proxies themselves have to be asked.
            with _pop_mode_temporarily() if torch._C._len_torch_function_stack() else _NOTHING, \
                    torch._C._EnableTorchFunction():
                made = self._make(expression)
        except (KeyError, NotImplementedError):  # an operation that no graph has: then it is the number
            return specialise(value)
        return made.node if isinstance(made, fx.Proxy) else made

    def can_make(self, expression: sympy.Basic) -> bool:
        return expression in self.known or all(
            s in self.definitions or s in self.known or s in self.numbers for s in expression.free_symbols)

    def _make(self, expression: sympy.Basic) -> Any:
        found = self.known.get(expression)
        if found is not None:
            return found
        if isinstance(expression, sympy.Symbol):
            made: Any = fx.Proxy(self._symbol(expression), self.tracer)
        elif isinstance(expression, (sympy.Number, BooleanAtom)) or not expression.args:
            return sympy_interp(_NodeAnalysis, {}, expression)
        elif isinstance(expression, sympy.ITE):
            condition, then, other = expression.args
            return self._make(sympy.Or(sympy.And(condition, then), sympy.And(sympy.Not(condition), other)))
        elif isinstance(expression, sympy.Piecewise):
            made = self._make_choice(expression)
        else:
            parts = [self._make(part) for part in expression.args]
            made = _run_sympy_handler(_NodeAnalysis, parts, expression)
        if isinstance(made, fx.Proxy):
            self.known[expression] = made
        return made

    def _make_choice(self, expression: sympy.Piecewise) -> Any:
        """The first part whose condition holds; the last one stands for what is left."""
        *parts, last = expression.args
        made = self._make(last.args[0])
        for value, condition in (part.args for part in reversed(parts)):
            made = self.tracer.create_proxy("call_function", torch.sym_ite,
                                            (self._make(condition), self._make(value), made), {})
        return made

    def _symbol(self, symbol: sympy.Symbol) -> fx.Node:
        if symbol in self.numbers:
            return self.add_number_input(symbol)
        node, path = self.definitions[symbol]
        if not path:
            return node
        # Right where the symbol was made: the tensor may be given another shape in place later on.
        after = node.next
        while after.op == "placeholder":
            after = after.next
        with self.graph.inserting_before(after):
            node = follow(self.graph, node, tuple(path), self.node_of)
        # Not what the tensor's fake says: it may have another shape by now.
        example = self.shape_env.ragged.get(symbol)
        if example is None:
            hint = self.shape_env.backed_var_to_val.get(symbol)
            example = self.shape_env.create_symintnode(symbol, hint=None if hint is None else int(hint))
        node.meta["example_value"] = example
        return node


_OPERATORS = {"size": torch.ops.aten.sym_size.int, "stride": torch.ops.aten.sym_stride.int,
              "storage_offset": torch.ops.aten.sym_storage_offset.default}


def follow(graph: fx.Graph, node: fx.Node, path: tuple[Any, ...], node_of: Callable[[Any], Any]) -> fx.Node:
    """The node at the end of `path`; `node_of` gives the node of a symbolic divisor."""
    keys = list(path)
    while keys:
        key = keys.pop(0)
        if is_a(key, symbolic_shapes.CallMethodKey):
            args = (keys.pop(0).idx,) if keys and is_a(keys[0], pytree.SequenceKey) else ()
            node = _method(graph, node, key.name, args)
        elif is_a(key, pytree.SequenceKey):
            node = _call(graph, operator.getitem, node, key.idx)
        elif is_a(key, symbolic_shapes.ConvertIntKey):
            node = graph.call_function(torch.sym_ite, (node, 1, 0))
        elif is_a(key, symbolic_shapes.DivideByKey):
            node = graph.call_function(operator.floordiv, (node, node_of(key.divisor)))
        elif is_a(key, symbolic_shapes.InnerTensorKey):
            node = _call(graph, getattr, node, key.inner_name)
        else:
            raise AssertionError(f"no way to follow {key} from {node}")
    return node


def _method(graph: fx.Graph, node: fx.Node, name: str, args: tuple[Any, ...]) -> fx.Node:
    made = _OPERATORS.get(name)
    if made is None:
        return graph.call_method(name, (node, *args))
    call = graph.call_function(made, (node, *args))
    if "example_value" in node.meta:
        # Of the tensor as the trace left it, as the example value of its node is: the pass that inserts assertions
        # reads both, and takes equal ones for the same number.
        call.meta["example_value"] = getattr(node.meta["example_value"], name)(*args)
    return call


def _call(graph: fx.Graph, function: Callable[..., Any], node: fx.Node, argument: object) -> fx.Node:
    call = graph.call_function(function, (node, argument))
    if "example_value" in node.meta:
        call.meta["example_value"] = function(node.meta["example_value"], argument)
    return call
