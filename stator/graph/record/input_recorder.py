"""Inputs of the graph.   a parameter, a number, a random stream  ->  a placeholder and its stand-in

In: a user value and its source.  Out: a fake tensor or a symbol tied to a node, and a `GraphInput` that the residual
program hands over.  `Recorder` is made of this and of the operations.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import torch
from torch import fx
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn.parameter import is_lazy

from stator.breaks import Break
from stator.graph.analysis.shared_memory import mapped_file
from stator.graph.fx.nodes import first_operation, input_name, new_input
from stator.graph.metadata import input_layouts
from stator.graph.metadata.propagation import Propagation
from stator.graph.record.recorder_state import BackendTraits, GraphScope, TraceServices
from stator.graph.record.wrapper_subclasses import Wrappers
from stator.guards.guard import TensorMeta, tensor_meta
from stator.guards.shape_check import Operand, Property
from stator.shapes.named_dimensions import Dim
from stator.shapes.symbol_nodes import SymbolNodes
from stator.shapes.symbolic_inputs import drawn_number, float_tensor, symbolic_fake, symbolic_number
from stator.shapes.symbolic_values import has_unbacked
from stator.source import Source

SPARSE_LAYOUTS = frozenset({torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc})


class GraphInput:
    """A tensor that the residual program hands to the graph."""

    __slots__ = ("source", "tensor", "fake", "example", "node", "boxed")

    def __init__(self, source: Source, tensor: torch.Tensor, fake: FakeTensor, node: fx.Node,
                 boxed: bool = False) -> None:
        self.source, self.tensor, self.fake, self.node = source, tensor, fake, node
        self.example = fake  # what compilers are shown of it
        self.boxed = boxed  # a float, which the residual hands over inside a tensor


class InputRecorder:
    """The inputs of one graph; which node makes which fake."""

    wrappers: Wrappers  # which need the whole recorder

    def __init__(self, fake_mode: FakeTensorMode) -> None:
        self.fake_mode = fake_mode
        self.services = TraceServices()
        self.backend = BackendTraits()
        self.scope = GraphScope()
        self.graph = fx.Graph()
        self.inputs: list[GraphInput] = []
        self.nodes: dict[int, Any] = {}  # id(fake) -> its node, or (node, index) until someone needs it
        self.kept: list[Any] = []
        self.classes: dict[int, type] = {}  # id(fake) -> the subclass of Tensor that the program sees, where it is one
        self.copies: dict[int, tuple[Any, Source]] = {}  # id(fake) -> a tensor that the residual copies, and its name
        self.symbols = SymbolNodes(self.graph, fake_mode.shape_env)
        self.symbols.add_number_input = self._add_number_input
        self.propagation = Propagation(fake_mode)
        self.plain_inputs = input_layouts.PlainInputs(self.propagation.fakes)

    def add_input(self, tensor: torch.Tensor, source: Source, dims: dict[int, Any] | None = None,
                  strides: frozenset[int] = frozenset()) -> FakeTensor:
        if self.scope.enclosing is not None:  # in an inner graph: outside tensors come through the outermost
            with self.scope.enclosing.outside():
                return self.add_input(tensor, source, dims, strides)
        with torch._C.DisableTorchFunction():
            cls = type(tensor)
            known = cls in input_layouts.PLAIN_CLASSES and id(tensor) not in self.wrappers.parts
            if known and self.propagation.enabled and not dims and not strides \
                    and not (torch.is_inference_mode_enabled() or special_kind(tensor) or mapped_file(tensor)) \
                    and (fake := self.plain_inputs.fake(tensor, True)) is not None:
                node = self.placeholder(fake, source)
                self.tie(fake, node)
                self.symbols.take_fresh(fake)
                self.inputs.append(GraphInput(source, tensor, fake, node))
                return fake
            special = cls not in input_layouts.PLAIN_CLASSES and not input_layouts.acts_as_parameter(cls)
            if special and is_lazy(tensor):
                raise Break("SB017", f"an {type(tensor).__name__}, which has no sizes yet")
            if id(tensor) in self.wrappers.parts and not tensor.requires_grad:
                return self.wrappers.part(*self.wrappers.parts[id(tensor)])
            if special and input_layouts.acts_as_wrapper(type(tensor)):
                return self.wrappers.add_input(tensor, source, dims or {})
            if special and not input_layouts.acts_above_dispatch(type(tensor)):
                raise Break("SB017", f"a tensor of type {type(tensor).__name__}")
            if tensor.layout is not torch.strided and not self._takes_layout(tensor):
                raise Break("SB017", f"a tensor of layout {tensor.layout}")
            if (kind := special_kind(tensor)) is not None:
                raise Break("SB017", f"a {kind} tensor")
            if tensor._is_view():
                refuse_spoilt_view(tensor)
            if tensor._is_view() and tensor._base is not None and (kind := special_kind(tensor._base)) is not None:
                raise Break("SB017", f"a view of a {kind} tensor")
            if tensor.layout is not torch.strided and tensor.is_leaf and tensor.grad is not None \
                    and tensor.grad.layout is not tensor.layout:
                raise Break("SB017", f"a tensor of layout {tensor.layout} with a gradient of another layout")
            try:
                # The input was made outside, whatever mode the program is in now.
                with torch.inference_mode(tensor.is_inference()), _parts_readable(tensor):
                    fake = self.plain_inputs.fake(tensor, self.propagation.enabled and not dims and not strides)
                    if fake is None:
                        # A fake refuses a gradient of another dtype, which `w.data = w.data.double()` leaves behind.
                        alone = tensor.is_leaf and tensor.grad is not None and tensor.grad.dtype is not tensor.dtype
                        fake = symbolic_fake(self.fake_mode, tensor, source, dims or {}, strides) \
                            if dims or strides or alone else self.fake_mode.from_tensor(tensor, static_shapes=True)
            except (NotImplementedError, AssertionError, fake_tensor.UnsupportedOperatorException,
                    fake_tensor.UnsupportedFakeTensorException) as error:
                raise Break("SB017", str(error)) from error
            file = mapped_file(tensor)
            if file is not None and any(file == mapped_file(each.tensor) for each in self.inputs):
                raise Break("SB005", "two tensors on one file")
            if fake.dim() == 0:
                fake.item_memo = None  # torch gives scalars on the CPU a symbol of their own: they are data, too
        node = self.placeholder(fake, source)
        self.tie(fake, node)
        if special:
            self.classes[id(fake)] = type(tensor)
        self.symbols.take_fresh(fake)  # sizes declared unbacked: the input itself defines them
        self.symbols.define_input(node, fake, source, self.services.locate())
        for dim, how in (dims or {}).items():
            if how == "declared" or isinstance(how, Dim):
                self.symbols.declare(Operand(source, Property.SIZE, dim), fake.shape[dim], how)
        self.inputs.append(GraphInput(source, tensor, fake, node))
        return fake

    def _takes_layout(self, tensor: torch.Tensor) -> bool:
        """Whether the graph may get a sparse tensor; of one with a gradient, no compiler gets the operations."""
        if tensor.layout not in SPARSE_LAYOUTS or not self.backend.takes_sparse:
            return False
        self.backend.has_sparse = True
        if tensor.requires_grad and not self.backend.in_order:
            self.backend.meets_sparse = True
            return self.scope.enclosing is None
        return True

    def add_object(self, value: object, source: Source) -> None:
        """A user object that operations take (a random stream); the graph gets it unchanged."""
        node = self.placeholder(value, source)
        self.tie(value, node)
        self.inputs.append(GraphInput(source, None, value, node))

    def add_graph_input(self, source: Source, tensor: torch.Tensor, fake: FakeTensor, node: fx.Node) -> None:
        self.inputs.append(GraphInput(source, tensor, fake, node))

    def placeholder(self, example: object, source: Source, name: str | None = None) -> fx.Node:
        """The node of an input, after those of the others; `name`: as the source is called in the graph."""
        name = input_name(source.text()) if name is None else name
        node = new_input(self.graph, self.scope.last_input, name)
        self.scope.last_input = node
        node.meta["example_value"] = example
        node.meta["source"] = source
        return node

    def add_number(self, value: int | float, source: Source, undecided: bool = False, named: object = None) -> Any:
        """A symbol for a Python number from outside; of an undecided one the trace knows nothing."""
        if self.scope.enclosing is not None:
            with self.scope.enclosing.outside():
                return self.add_number(value, source, undecided)
        symbol, number = symbolic_number(self.symbols.shape_env, value, source, undecided)
        self.symbols.define_number(symbol, number, source, self.services.locate())
        if undecided:
            self.symbols.take_fresh(number)
        elif named is not None:
            self.symbols.declare(Operand(source, Property.NUMBER), number, named)
        return number

    def add_drawn(self, cls: type, source: Source, bounds: tuple[Any, Any] | None) -> Any:
        """A symbol for a number that the residual draws; all that is known of it is its range."""
        symbol, number = drawn_number(self.symbols.shape_env, cls, source, bounds)
        self.symbols.define_number(symbol, number, source, self.services.locate())
        self.symbols.take_fresh(number)
        self.symbols.has_fresh = True
        return number

    def _add_number_input(self, symbol: object) -> fx.Node:
        value, source = self.symbols.numbers[symbol]
        if type(value) is torch.SymInt:
            node = self.placeholder(value, source)
            self.inputs.append(GraphInput(source, None, value, node))
            return node
        with torch._C.DisableTorchFunction():
            example = 0.5 if has_unbacked(value) else value.node.hint
            fake = self.fake_mode.from_tensor(float_tensor(example), static_shapes=True)
        fake.item_memo = value
        node = self.placeholder(fake, source)
        self.tie(fake, node)
        self.inputs.append(GraphInput(source, None, fake, node, boxed=True))
        with self.graph.inserting_before(first_operation(node)):
            number = self.graph.create_node("call_method", "item", (node,), {})
        number.meta["example_value"] = value
        return number

    def meta_of(self, tensor: torch.Tensor, fake: FakeTensor | None = None) -> TensorMeta:
        """The facts of a tensor; what is a symbol in its fake form is left open."""
        with torch._C.DisableTorchFunction():
            meta = tensor_meta(tensor)
            if fake is None or not fake._has_symbolic_sizes_strides:
                return meta
            return replace(meta, sizes=fixed_extents(fake.shape), strides=fixed_extents(fake.stride()))

    def tie(self, fake: FakeTensor, node: fx.Node) -> None:
        if id(fake) not in self.nodes:
            self.kept.append(fake)
            self.nodes[id(fake)] = node


def fixed_extents(extents: Any) -> tuple[int | None, ...]:
    return tuple(extent if type(extent) is int else None for extent in extents)


def refuse_spoilt_view(tensor: torch.Tensor) -> None:
    """Break at one of several views of a written tensor: autograd raises at the first read of its flags."""
    try:
        tensor.is_leaf  # noqa: B018
    except RuntimeError as error:
        raise Break("SB016", str(error).partition(". ")[0]) from None


def _parts_readable(tensor: torch.Tensor) -> contextlib.AbstractContextManager[object]:
    """Around the making of a fake: torch reads the indices of a compressed sparse tensor by operations."""
    return fake_tensor.unset_fake_temporarily() if tensor.layout in SPARSE_LAYOUTS else contextlib.nullcontext()


def special_kind(tensor: torch.Tensor) -> str | None:
    """Name what torch's fakes cannot stand for."""
    if tensor.is_quantized:
        return "quantised"
    if tensor.is_nested:
        return "nested"
    if torch._C._functorch.is_legacy_batchedtensor(tensor):  # of vmap as autograd.grad(is_grads_batched=True) has it
        return "batched"
    return "functionalised" if torch._is_functional_tensor(tensor) else None
