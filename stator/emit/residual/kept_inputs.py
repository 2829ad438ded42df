"""Copies of inputs, for a graph that fails.   p.add_(g); t[i]  ->  p is copied before;   t[i]; p.add_(g)  ->  no copy

In: the graph and the inputs that it writes to.  Out: a line of the residual that copies those which are written before
the last node that may raise, up to KEPT_BYTES or a sixteenth of all inputs, and the condition under which they are as
they were.  Backends run the nodes in order, or write at the end of each piece; for others, every input counts.  Where
no node moves a tensor to other memory, contents alone are copied, by one operation.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

import torch
from torch import fx

from stator.breaks import Break, Strategy
from stator.emit.source_writer import Writer
from stator.graph.analysis.may_fail import Memory, memory_written_by, node_may_fail, stem_of
from stator.graph.analysis.mutation import changes_views
from stator.graph.analysis.step_functions import require_finite
from stator.graph.metadata.input_layouts import PLAIN_CLASSES, acts_as_wrapper
from stator.graph.record.recorder import Recorder

_CALLS = ("call_function", "call_method", "call_module")
_MODULES = frozenset({"torch", "_operator", "operator", "math", "builtins", "stator"})
_MOVES = frozenset({"set", "resize", "resize_as", "swap_tensors", "getattr", "setattr"})
_own = torch._C.TensorBase  # where the program may have replaced Tensor's methods
_version, _grad_fn, _empty_like = _own._version.__get__, _own.grad_fn.__get__, torch.empty_like
KEPT_BYTES = 4 << 20
SHARE = 16
_detach, _clone, _is_inference = _own.detach, _own.clone, _own.is_inference
_layout_of, _set_data = _own.layout.__get__, _own.data.__set__
Kept = tuple[tuple[torch.Tensor, ...], list[torch.Tensor], list[int], list[Any]]


def writes_at_risk(recorder: Recorder, graph: fx.Graph, written: list[Any], shared: frozenset[str]) -> list[Any]:
    if not (recorder.backend.in_order or recorder.backend.cut_at_errors):
        return written
    memory, last = Memory(shared), 0
    for place, node in enumerate(graph.nodes):
        if node.op in _CALLS and node_may_fail(node, memory):
            last = place + 1
    known = {node.name for node in memory_written_by(graph.nodes)}
    early = {node.name for node in memory_written_by(islice(graph.nodes, last))}
    return [each for each in written if each.node.name in early or each.node.name not in known]


def writes_before_a_check(graph: fx.Graph, written: list[Any]) -> list[Any]:
    """The inputs written before the last check of a GradScaler, at which every compiler's graph is cut."""
    last = max(place for place, node in enumerate(graph.nodes) if node.target is require_finite)
    known = {node.name for node in memory_written_by(graph.nodes)}
    early = {node.name for node in memory_written_by(islice(graph.nodes, last))}
    return [each for each in written if each.node.name in early or each.node.name not in known]


def keeps_memory(graph: fx.Graph, written: list[Any]) -> bool:
    """Whether the inputs are plain tensors, and no node can give one other memory."""
    tensors = [each.tensor for each in written]
    plain = all(type(tensor) in PLAIN_CLASSES and tensor.layout is torch.strided and not tensor.is_inference()
                and torch._debug_has_internal_overlap(tensor) != 1 for tensor in tensors)
    return plain and not any(node.op in _CALLS and (
        stem_of(node.target) in _MOVES or changes_views(node) or "out" in node.kwargs
        or not _is_of_torch(node.target)) for node in graph.nodes)


def _is_of_torch(target: object) -> bool:
    if isinstance(target, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return str(target).startswith(("aten.", "prims."))
    return isinstance(target, str) or (getattr(target, "__module__", None) or "").partition(".")[0] in _MODULES


def copy_contents(tensors: tuple[torch.Tensor, ...]) -> Kept:
    with torch.inference_mode():
        copies = list(map(_empty_like, tensors))
        torch._foreach_copy_(copies, tensors)
    return tensors, copies, list(map(_version, tensors)), list(map(_grad_fn, tensors))


def copy_back(kept: Kept) -> bool:
    """Make the tensors so again; False, and nothing done, where autograd has seen a write."""
    tensors, copies, versions, functions = kept
    if any(_grad_fn(tensor) is not function for tensor, function in zip(tensors, functions, strict=True)):
        return False
    with torch.inference_mode():
        torch._foreach_copy_([_own.detach(tensor) for tensor in tensors], copies)
    torch._C._autograd._unsafe_set_version_counter(tensors, tuple(versions))
    return True


def copies_for_redo(writer: Writer, graph: fx.Graph, written: dict[str, Any], at_risk: list[Any]) -> tuple[str, str]:
    """A line that copies, and the condition under which the copies are back, and nothing else was written."""
    copied = [name for name, each in written.items() if each in at_risk]
    versions = "".join(f"{name}._version, " for name in written if name not in copied)
    copy, back = (copy_contents, copy_back) if keeps_memory(graph, at_risk) else (keep, put_back)
    line = f"kept = {writer.constant(copy)}(({', '.join(copied)},))"
    if not versions:
        return line, f"{writer.constant(back)}(kept)"
    return f"{line}; versions = ({versions})", f"({versions}) == versions and {writer.constant(back)}(kept)"


def small_enough(written: list[torch.Tensor], given: list[torch.Tensor]) -> bool:
    sizes = [sum(tensor.numel() * tensor.element_size() for tensor in tensors) for tensors in (written, given)]
    return sizes[0] <= max(KEPT_BYTES, sizes[1] // SHARE)


def keep(tensors: tuple[torch.Tensor, ...]) -> list[Any]:
    """The tensors as they are now, wrappers by their parts. One whose own elements overlap cannot be written to."""
    plain = [leaf for tensor in tensors for leaf in plain_parts(tensor)]
    return [(tensor, _clone(_detach(tensor)), None if _is_inference(tensor) else tensor._version, _grad_fn(tensor),
             (layout, _detach(tensor)))
            for tensor in plain if not (layout := _layout(tensor)) or torch._debug_has_internal_overlap(tensor) != 1]


def plain_parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """A tensor, or those that a wrapper is made of: its class need not have `clone`."""
    if not acts_as_wrapper(type(tensor)):
        return [tensor]
    names: list[str] = tensor.__tensor_flatten__()[0]  # type: ignore[attr-defined]
    return [leaf for name in names for leaf in plain_parts(getattr(tensor, name))]


def _layout(tensor: torch.Tensor) -> tuple[Any, ...]:
    return (_own.untyped_storage(tensor)._cdata, _own.size(tensor), _own.stride(tensor), _own.storage_offset(tensor)) \
        if _layout_of(tensor) is torch.strided else ()


def _parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The tensors that hold its elements: itself, or indices and values of a sparse one."""
    return [getattr(_own, name)(tensor) for name in _PARTS.get(_layout_of(tensor), ())] or [tensor]


_COMPRESSED = {"crow_indices col_indices values": (torch.sparse_csr, torch.sparse_bsr),
               "ccol_indices row_indices values": (torch.sparse_csc, torch.sparse_bsc)}
_PARTS = {layout: names.split() for names, layouts in _COMPRESSED.items() for layout in layouts}
_PARTS[torch.sparse_coo] = ["_indices", "_values"]


def put_back(kept: list[Any]) -> bool:
    """Make them so again; False, and nothing done, where autograd has seen a write."""
    if any(_grad_fn(tensor) is not grad_fn for tensor, _, _, grad_fn, _ in kept):
        return False
    for tensor, _, _, _, (layout, before) in kept:
        if not layout:
            _set_data(tensor, before)  # the parts that it had
        elif layout != _layout(tensor):
            with torch.inference_mode(_is_inference(tensor)), torch.no_grad():
                _own.set_(tensor, before)
    with torch.inference_mode():
        for tensor, contents, version, _, _ in kept:
            for part, then in zip(_parts(_detach(tensor)), _parts(contents), strict=True):
                _own.copy_(part, then)
            if version is not None:
                torch._C._autograd._unsafe_set_version_counter((tensor,), (version,))
    return True


def unchecked_step() -> Break:
    return Break("SB002", "the check of a GradScaler, behind what cannot be taken back",
                 turn_off=Strategy.UNSPOKEN_ASSERTIONS)
