"""Inputs of a graph in the residual.   x of a tensor subclass  ->  plain_tensor(x)

Inputs are handed over, copied before the graph runs, marked as static (CUDA graphs copy all others at each call), and
checked against asserted relations of unbacked sizes.  A call that fails the check runs uncompiled.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import sympy
import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import SYMPY_INTERP
from torch.utils import _pytree as pytree
from torch.utils._sympy.printers import PythonPrinter

from stator import events
from stator.emit.residual.eager_calls import run_as_it_is
from stator.emit.services import Rebuilder
from stator.graph.analysis.shared_memory import address_of, is_member
from stator.guards.guard import Kind
from stator.guards.guard_semantics import Unreadable, evaluate
from stator.heap.adopt.instances import leaf_sources
from stator.heap.heap import Heap
from stator.heap.raw_access import instance_dict
from stator.heap.tracker import Box
from stator.host.value_kinds import is_a
from stator.interp.tensors.tensor_copies import Flag
from stator.shapes.symbolic_inputs import float_tensor
from stator.shapes.symbolic_values import UserPrinter
from stator.shapes.tensor_marks import ADDRESS_MARK
from stator.source import DictOf, Drawn, Key, Source


def is_reshaped(each: Any) -> bool:
    """Whether the program has changed sizes or strides of an input; of a subclass the graph gets another tensor."""
    if not isinstance(each.tensor, torch.Tensor) or type(each.tensor) is torch.Tensor:
        return False
    with torch._C.DisableTorchFunction():
        return each.fake.dim() != each.tensor.dim() or any(
            type(now) is int and now != then for now, then in zip(
                (*each.fake.shape, *each.fake.stride()), (*each.tensor.shape, *each.tensor.stride()), strict=True))


def handed_over(build: Rebuilder, each: Any) -> str:
    name = build.outside(each.source)
    if each.boxed:
        return f"{build.writer.constant(float_tensor, 'float_tensor')}({name})"
    if type(each.source) is Drawn and isinstance(each.fake, torch.Tensor):
        return f"{build.writer.constant(torch.from_numpy, 'from_numpy')}({name})"
    if id(each.fake) in build.recorder.classes and id(each.fake) not in build.recorder.wrappers.behind:
        return f"{build.writer.constant(plain_tensor, 'plain_tensor')}({name})"
    return name


def plain_tensor(tensor: torch.Tensor) -> Any:
    """A tensor of a subclass as the graph takes it: the trace has done what its `__torch_function__` does."""
    with torch._C.DisableTorchFunctionSubclass():
        if tensor.requires_grad and not torch.is_grad_enabled():
            with torch.enable_grad():
                return tensor.as_subclass(torch.Tensor)
        return tensor.as_subclass(torch.Tensor)


def write_copies(build: Rebuilder, made: list[Any]) -> list[str]:
    """The lines that make copies and set their flags; tensors of one deepcopy() share its memo."""
    memos: dict[int, str] = {}
    lines: list[str] = []
    for each in made:
        name = build.outside(each.source)
        if type(each) is Flag:
            lines.append(f"{build.method('requires_grad_')}({name}, {each.value})")
            continue
        if each.memo not in memos:
            memos[each.memo] = build.writer.fresh("memo")
            lines.append(f"{memos[each.memo]} = {{}}")
        copier = build.writer.constant(copy.deepcopy, "deepcopy")
        lines.append(f"{name} = {copier}({build.outside(each.original)}, {memos[each.memo]})")
    return lines


def mark_static_addresses(heap: Heap, inputs: list[Any], bound: tuple[Any, ...]) -> None:
    """Note on each placeholder that its tensor stays, if it does."""
    members: set[Source] | None = None
    for each in inputs:
        if not is_a(each.tensor, torch.Tensor) or is_member(each.source):
            continue
        if members is None:  # places of tensors that were met again as a parameter or buffer
            members = {guard.value for guard in heap.guards.single()
                       if guard.kind is Kind.ALIAS and is_member(guard.source)}
        mark = (instance_dict(each.tensor) or {}).get(ADDRESS_MARK)
        if mark == "guarded":
            for leaf, source in leaf_sources(each.tensor, each.source):
                heap.guard_call(address_of, address_of(leaf), source)
        elif not mark and (each.source in members or is_held(heap, each, bound)):
            mark = "unguarded"
        if mark:
            each.node.meta["tensor_dict"] = {ADDRESS_MARK: mark}


def is_held(heap: Heap, graph_input: Any, bound: tuple[Any, ...]) -> bool:
    """Whether a module holds the tensor as an attribute, and still does when the call ends."""
    place = graph_input.source
    if type(place) is not Key or type(place.base) is not DictOf or place.base.base is None:
        return False
    try:
        module = evaluate(place.base.base, bound)
    except Unreadable:
        return False
    if not is_a(module, torch.nn.Module):
        return False
    tracker = heap.by_original.get(id(module))
    if tracker is None:
        return True
    now = (instance_dict(tracker.standin) or {}).get(place.key)
    return now is graph_input.fake or type(now) is Box


def require_sizes(build: Rebuilder, inputs: list[Any], asserted: dict[fx.Node, Any], names: Callable[[Any], str]
                  ) -> list[str]:
    """The lines of the residual that test the sizes; `names` gives the name of an input there."""
    symbols = build.vm.recorder.symbols
    unbacked = {symbol for found in asserted.values() for symbol in found}
    by_node = {each.node: each for each in inputs}
    relations = [each.expr for asserts in symbols.shape_env.deferred_runtime_asserts.values() for each in asserts]
    kept = [expression for expression in dict.fromkeys(relations) if expression.free_symbols & unbacked and all(
        symbols.definitions.get(symbol, (None,))[0] in by_node for symbol in expression.free_symbols)]
    if not kept:
        return []
    wanted = sorted({symbol for expression in kept for symbol in expression.free_symbols}, key=str)
    places = {symbol: (by_node[symbols.definitions[symbol][0]], symbols.definitions[symbol][1]) for symbol in wanted}
    given = ", ".join(f"{names(each)}{spelled(path)}" for each, path in places.values())
    texts = {symbol: f"{each.source.text()}{spelled(path)}" for symbol, (each, path) in places.items()}
    check = SizesHold(kept, wanted, texts, unbacked)
    return [f"unmet = {build.writer.constant(check, 'unmet_sizes')}({given})", "if unmet is not None:",
            f"    return {build.writer.constant(made_for_others)}(unmet)"]


def spelled(path: Any) -> str:
    """Of a tensor: `.size(0)`."""
    index = [part.idx for part in path[1:] if isinstance(part, pytree.SequenceKey)]
    return f".{path[0].name}({', '.join(map(str, index))})"


class SizesHold:
    """A function of sizes: None where every relation holds, else a message about the first that does not."""

    __name__ = "unmet_sizes"

    def __init__(self, relations: list[Any], symbols: list[sympy.Symbol], texts: dict[Any, str], marked: set[Any]
                 ) -> None:
        arguments = ", ".join(map(str, symbols))
        self.relations = [eval(f"lambda {arguments}: {PythonPrinter().doprint(each)}", dict(SYMPY_INTERP))
                          for each in relations]
        shown = {symbol: sympy.Symbol(text, integer=True) for symbol, text in texts.items()}
        self.texts = [UserPrinter().doprint(each.xreplace(shown)) for each in relations]
        self.marked = " and ".join(texts[symbol] for symbol in symbols if symbol in marked)

    def __call__(self, *sizes: int) -> str | None:
        broken = (text for holds, text in zip(self.relations, self.texts, strict=True) if not holds(*sizes))
        return next((f"{self.marked} is marked unbacked, and the graph was made for sizes such that {text}"
                     for text in broken), None)


def made_for_others(unmet: str) -> Any:
    events.emit(events.EagerFallback("a compiled graph", unmet))
    return run_as_it_is(f"stator: {unmet}. A call with other sizes (one that is broadcast, for instance) was made "
                        "eagerly instead, as every such call will be; mark the size dynamic to have them compiled.")
