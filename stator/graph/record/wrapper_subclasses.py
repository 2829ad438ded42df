"""Wrapper subclasses (`__torch_dispatch__`).   a TwoTensor  ->  a fake of its sizes, and a TwoTensor of fakes behind it

An operation is done on the wrapper behind, whose own `__torch_dispatch__` runs, and recorded as one node on the outer
tensors, which AOTAutograd takes apart.  The code of the class is a function of what `__tensor_flatten__` gives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from stator.breaks import Break
from stator.graph.analysis.may_fail import never_fails
from stator.graph.analysis.mutation import CODE, COLLECTIVES, Observation, declared_writes
from stator.graph.metadata.propagation import ExactNeeded
from stator.graph.record.nested_tensors import MAKERS, NestedInputs, is_jagged, outer_fake
from stator.graph.services import Recorder
from stator.guards.shape_check import Operand, Property
from stator.ranks.hidden_collectives import collectives_seen
from stator.ranks.pending_work import is_under_way
from stator.shapes.symbolic_inputs import symbolic_wrapper
from stator.source import Source

_SIZES = (int, torch.SymInt)


class Wrappers:
    """The wrappers of one trace, and what a recorder does with them."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.behind: dict[int, Any] = {}  # id of an outer fake -> the wrapper of fakes
        self.outers: dict[int, Any] = {}  # id of a wrapper of fakes -> its outer fake
        self.may_open = True  # whether sizes may be symbols
        self.distributed = False  # whether operations on them may communicate
        self.parts: dict[int, tuple[Any, str]] = {}  # id of a real inner tensor -> the outer fake, and the part's name
        self.nested = NestedInputs(recorder)

    def add_input(self, tensor: torch.Tensor, source: Source, dims: dict[int, Any]) -> FakeTensor:
        """One input of the graph, whose inner tensors are read from it; `dims`, and theirs like them, are symbols."""
        recorder = self.recorder
        if recorder.propagation.enabled:
            raise ExactNeeded  # its inner tensors may share storages with other inputs
        if tensor.is_nested and not is_jagged(tensor) or is_under_way(tensor):
            raise Break("SB017", f"a nested {type(tensor).__name__}, or a tensor that a collective computes")
        try:
            with torch.inference_mode(tensor.is_inference()):
                inner, parts = recorder.services.open_parts(tensor, source), parts_of(tensor)
                if not self.may_open or any(map(is_traceable_wrapper_subclass, parts.values())):
                    dims, inner = {}, {}  # no compiler was found to take them, or wrappers in wrappers: constants
                if is_jagged(tensor):
                    dims, wrapper = {}, self.nested.wrapper(tensor, source, parts, inner)
                elif dims or any(inner.values()):
                    wrapper = symbolic_wrapper(recorder.fake_mode, tensor, source, parts, dims, inner)
                else:
                    wrapper = recorder.fake_mode.from_tensor(tensor, static_shapes=True)
        except Exception as error:  # of torch or of the class: eager decides whether it is right
            raise Break("SB017", f"a {type(tensor).__name__}: {error}") from error
        if type(wrapper) is not type(tensor):
            raise Break("SB017", f"a {type(tensor).__name__}, whose __tensor_unflatten__ makes another class")
        fake = self.noted(wrapper)
        node = recorder.placeholder(wrapper, source)
        recorder.tie(fake, node)
        if is_jagged(wrapper):
            self.nested.define(node, wrapper)
        else:
            recorder.symbols.define_input(node, fake, source, recorder.services.locate())
        for dim, how in dims.items():
            if how != "open":
                recorder.symbols.declare(Operand(source, Property.SIZE, dim), fake.shape[dim], how)
        for name in flatten(tensor)[0]:
            self.parts[id(getattr(tensor, name))] = (fake, name)
        recorder.add_graph_input(source, tensor, fake, node)
        return fake

    def call(self, func: Any, op: str, target: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call on wrappers of fakes, each of which does with it what its class says."""
        recorder = self.recorder
        if op == "setattr":
            raise Break("SB006", f"assignment to Tensor.{target} of a wrapper")
        declared = declared_writes(func, args, kwargs)
        given = self.inside((args, kwargs))
        with Observation(func, *given) as seen, collectives_seen(self.distributed) as collectives:
            result = self.attempt(func, target, *given)
        written = self.outside(seen.written()) if declared is None else declared
        with torch._C.DisableTorchFunction():
            if recorder.symbols.shape_env.pending_fresh_unbacked_symbols and not (
                    recorder.scope.data_dependent and any(map(is_jagged, pytree.tree_leaves(given)))):
                raise Break("SB003", f"{getattr(target, '__name__', target)} of a wrapper subclass")
            self.require_same((args, kwargs))
            result = self.noted(result)
        if written or result is None:
            recorder.log.changes += 1
        if written or result is None or recorder.holds_tensor(result):
            once = "" if not collectives else COLLECTIVES if never_fails(target) else CODE
            self.nested.define_made(recorder.record(op, target, args, kwargs, result, written, once))
        return result

    def attempt(self, func: Callable[..., object], target: object, args: tuple[object, ...], kwargs: dict[str, object]
                ) -> object:
        """The call on wrappers of fakes; handlers of jagged tensors are torch's own."""
        if func not in MAKERS and not any(map(is_jagged, pytree.tree_leaves((args, kwargs)))):
            return self.recorder.attempt(func, target, args, kwargs)
        return self.nested.attempt(func, args, kwargs)

    def construct(self, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A wrapper made of tensors of the graph: its class is called, here and by a node."""
        recorder = self.recorder
        if recorder.propagation.enabled:
            raise ExactNeeded
        made = self.attempt(cls, cls, *self.inside((args, kwargs)))
        with torch._C.DisableTorchFunction():
            made = self.noted(made)
        if type(made) is not FakeTensor:
            raise Break("SB017", f"a call of {cls.__name__} that makes no tensor")
        self.nested.define_made(recorder.record("call_function", cls, args, kwargs, made))
        return made

    def part(self, outer: object, name: str) -> Any:
        with torch._C.DisableTorchFunction():
            fake = self.noted(getattr(self.behind[id(outer)], name))
        if id(fake) not in self.recorder.nodes:
            self.recorder.record("getattr", name, (outer,), {}, fake)
        return fake

    def define_part(self, outer: object, name: str, fake: FakeTensor, source: Source) -> None:
        """The symbols that an inner tensor brings; those that the outer one has too are a relation between them."""
        symbols = self.recorder.symbols
        sizes = {each.node.expr for each in (*fake.shape, *fake.stride()) if type(each) is torch.SymInt}
        known = all(symbol in symbols.definitions for size in sizes for symbol in size.free_symbols)
        node = self.recorder.node_of(outer if known else self.part(outer, name))
        symbols.define_input(node, fake, source, self.recorder.services.locate())

    def noted(self, result: object) -> Any:
        """A result of an operation on wrappers, as the interpreter sees it."""
        recorder, result = self.recorder, self.outside(result)
        for fake in pytree.tree_leaves(result):
            wrapper = self.behind.get(id(fake)) if type(fake) is FakeTensor else None
            if wrapper is not None and id(fake) not in recorder.classes:
                recorder.kept += (fake, wrapper)
                recorder.classes[id(fake)] = type(wrapper)
        return result

    def outer_of(self, wrapper: Any) -> FakeTensor:
        found = self.outers.get(id(wrapper))
        if found is not None:
            return found
        if not is_traceable_wrapper_subclass(wrapper):
            raise Break("SB017", f"an operation that returned a {type(wrapper).__name__}")
        extents = (*wrapper.shape, *wrapper.stride()) if wrapper.layout is torch.strided else (None,)
        if not is_jagged(wrapper) and any(type(extent) not in _SIZES for extent in extents):
            raise Break("SB017", f"a {type(wrapper).__name__} whose sizes are no integers")
        if is_jagged(wrapper):
            outer = outer_fake(self.recorder.fake_mode, wrapper)
        else:
            with torch._C._DisableTorchDispatch():
                elem = torch.empty_strided(wrapper.shape, wrapper.stride(), dtype=wrapper.dtype, device="meta")
                outer = FakeTensor(self.recorder.fake_mode, elem, wrapper.device)
        if wrapper.requires_grad and not is_jagged(wrapper):
            outer.requires_grad_()
            if not wrapper.is_leaf:
                with torch.enable_grad():
                    outer = outer.view_as(outer)
        self.behind[id(outer)], self.outers[id(wrapper)] = wrapper, outer
        self.distributed = self.distributed or type(wrapper).__module__.startswith("torch.distributed")
        return outer

    def inside(self, value: object) -> Any:
        return pytree.tree_map_only(FakeTensor, lambda fake: self.behind.get(id(fake), fake), value)

    def outside(self, value: object) -> Any:
        if not any(isinstance(leaf, torch.Tensor) and type(leaf) is not FakeTensor
                   for leaf in pytree.tree_leaves(value)):
            return value
        return pytree.tree_map_only(torch.Tensor, lambda t: t if type(t) is FakeTensor else self.outer_of(t), value)

    def concern(self, values: object) -> bool:
        if not self.behind:
            return False
        return any(id(leaf) in self.behind for leaf in pytree.tree_leaves(values) if type(leaf) is FakeTensor)

    def require_same(self, values: object) -> None:
        """An operation in place must have left sizes and autograd's flags as the outer fakes show them."""
        for outer in pytree.tree_leaves(values):
            wrapper = self.behind.get(id(outer)) if type(outer) is FakeTensor else None
            if wrapper is not None and _look(wrapper) != _look(outer):
                raise Break("SB017", f"an operation in place that changes what a {type(wrapper).__name__} looks like")


def _look(tensor: torch.Tensor) -> tuple[object, ...]:
    extents = [each.node.expr if type(each) is torch.SymInt else each for each in (*tensor.shape, *tensor.stride())]
    return *extents, tensor.dtype, tensor.requires_grad


def parts_of(tensor: torch.Tensor) -> dict[str, Any]:
    return {name: getattr(tensor, name) for name in flatten(tensor)[0]}


def flatten(tensor: torch.Tensor) -> tuple[list[str], Any]:
    """Names of the inner tensors; the context, with inner objects that are no tensors (a device mesh)."""
    with torch._C.DisableTorchFunction():
        names, context = tensor.__tensor_flatten__()
        others = {name: part for name in names if not isinstance(part := getattr(tensor, name), torch.Tensor)}
    return [name for name in names if name not in others], (context, others)


def same_flattening(tensor: torch.Tensor, names: tuple[str, ...], context: tuple[object, dict[str, object]]) -> bool:
    """A pure reader for guards: whether a wrapper has these inner tensors, and a context equal to this one."""
    found, now = flatten(tensor)
    if tuple(found) != names:
        return False
    (known, objects), (now, others) = context, now
    compare = getattr(type(tensor), "__metadata_guard__", None)
    return objects == others and bool(compare(known, now) if compare is not None else known == now)
