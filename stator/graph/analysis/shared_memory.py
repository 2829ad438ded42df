"""Which tensors share memory.   f(a, a.detach()) with a.add_(1) inside  ->  a guard that these two still share it

Out: which inputs share storages, whether a compiler that functionalises would compute something else, and breaks at
operations that would show whether a merged tensor is the one of before the branch.
"""

from __future__ import annotations

import collections
import operator
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils._python_dispatch import _disable_current_modes, is_traceable_wrapper_subclass

from stator.breaks import Break
from stator.graph.analysis.mutation import storage_of, tags_of, tensors_in
from stator.graph.metadata.input_layouts import PLAIN_CLASSES
from stator.graph.metadata.propagation import Propagation
from stator.guards.partition import Address, byte_range, group
from stator.shapes.symbolic_values import hint_of
from stator.source import MODULE_DICTS, Key, Source

_base, _requires_grad, _is_leaf = (  # a guard asks them, whatever the program has put in their place
    getattr(torch._C.TensorBase, name).__get__ for name in ("_base", "requires_grad", "is_leaf"))
_BASIC_INDEX = (int, slice, type(None), type(...))
# Answers that differ between a tensor and a copy of it.
_TELLING = frozenset({"storage_offset", "data_ptr", "untyped_storage", "storage", "is_set_to", "_is_view", "_base",
                      "is_leaf", "grad", "grad_fn", "_version", "retain_grad", "register_hook", "output_nr",
                      "retains_grad", "_backward_hooks", "requires_grad_", "detach_"})


_UNSAFE_VIEWS = frozenset({"unsafe_split", "unsafe_split_with_sizes", "unsafe_chunk"})


def writes_beside_unsafe_views(graph: fx.Graph) -> bool:
    """Whether a graph that writes has views whose schemas deny that they are any: compilers make copies of them."""
    names = (node.target if type(node.target) is str else getattr(node.target, "__name__", "") for node in graph.nodes
             if node.op.startswith("call_"))
    return any(name.partition(".")[0] in _UNSAFE_VIEWS for name in names)


def storage_partition(*tensors: torch.Tensor) -> tuple[int, ...]:
    """For each tensor, the number of the first one that lives in the same storage."""
    return group([byte_range(Address.STORAGE, tensor) for tensor in tensors], [True] * len(tensors))[0]


def shares_written(candidates: list[tuple[torch.Tensor, Source, bool]]) -> bool:
    """Whether a tensor that is written to lives in the storage of another one."""
    groups, _ = group([byte_range(Address.STORAGE, tensor) for tensor, _, _ in candidates],
                      [is_written for _, _, is_written in candidates])
    return len(set(groups)) < len(groups)


def sharing_memory(inputs: list[Any]) -> frozenset[str]:
    """The names of inputs that share their memory with others; which do is guarded where the graph writes."""
    tensors = [each for each in inputs if each.tensor is not None and type(each.tensor) in PLAIN_CLASSES
               and each.tensor.layout is torch.strided]
    places = storage_partition(*[each.tensor for each in tensors])
    counts = collections.Counter(places)
    return frozenset(each.node.name for each, place in zip(tensors, places, strict=True) if counts[place] > 1)


def address_of(tensor: torch.Tensor) -> int:
    with torch._C.DisableTorchFunction():
        return tensor.data_ptr()


def awaits_history(tensor: torch.Tensor) -> bool:
    """Whether autograd has still to make the history of a view whose base was written to; `is_leaf` would make it."""
    with torch._C.DisableTorchFunction():
        if not tensor.requires_grad or not tensor._is_view() or not tensor._base.requires_grad:
            return False
        with _disable_current_modes(), torch.enable_grad():
            try:
                tensor.add_(torch.empty([2] * (tensor.dim() + 1), dtype=tensor.dtype, device=tensor.device))
            except RuntimeError as error:
                return str(error).startswith("a leaf Variable")
    return False


def overlap_across_storages(inputs: list[Any]) -> bool:
    """Whether inputs share memory through several storages, as DLPack makes them: AOTAutograd takes them for apart."""
    tensors = [each.tensor for each in inputs if is_dense(each.tensor)]
    groups, _ = group([byte_range(Address.MEMORY, tensor) for tensor in tensors], [True] * len(tensors))
    with torch._C.DisableTorchFunction():
        return any(tensors[first].untyped_storage()._cdata != tensors[number].untyped_storage()._cdata
                   for number, first in enumerate(groups))


def refuses_writes(tensor: torch.Tensor) -> bool:
    """Whether autograd refuses to have a tensor written to in grad mode: a leaf, or a view of one."""
    with torch._C.DisableTorchFunction():
        base = _base(tensor)
        return _requires_grad(tensor) and (_is_leaf(tensor) or base is not None and _is_leaf(base))


def wording_of_refusal(tensor: torch.Tensor) -> str:
    """How autograd words that it refuses a write: as for a "leaf", a "view" of one, or in another way, "odd"."""
    with torch._C.DisableTorchFunction():
        if _base(tensor) is None:
            return "leaf" if _requires_grad(tensor) and _is_leaf(tensor) else ""
        if _is_leaf(tensor) or torch._C._autograd._get_creation_meta(tensor) != torch._C._autograd.CreationMeta.DEFAULT:
            return "odd"
        return "view" if refuses_writes(tensor) else ""


def is_view(tensor: torch.Tensor) -> bool:
    """Whether autograd takes a tensor for a view of another one."""
    with torch._C.DisableTorchFunction():
        return _base(tensor) is not None


def mapped_file(tensor: torch.Tensor) -> str | None:
    """The file that a storage shows (torch.from_file): others may show it at other addresses."""
    with torch._C.DisableTorchFunction():
        return tensor.untyped_storage().filename if type(tensor) is torch.Tensor and is_dense(tensor) else None


def is_member(source: Source | None) -> bool:
    """Whether a tensor was read from a module's parameters or buffers."""
    base = None if source is None else source.base
    return isinstance(base, Key) and base.key in MODULE_DICTS


def is_dense(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided


def sharing_candidates(inputs: list[Any], given: list[Any], written: set[Any], read: set[Any],
                       in_order: bool) -> list[Any]:
    """The inputs whose storages are compared; members of modules count in order only where a write meets a read."""
    own = {each.node for each in given}
    found = [each for each in inputs if (is_dense(each.tensor) or is_traceable_wrapper_subclass(each.tensor))
             and (each.node in own or each.node in read)]
    if in_order:
        found = [each for each in found
                 if not is_member(each.source) or each.node in read or read and each.node in written]
    return found if any(each.node in written for each in found) else []


class Overlaps:
    """The first write of a trace that must not be functionalised."""

    def __init__(self, propagation: Propagation) -> None:
        self.propagation = propagation
        self.found = ""
        self.storages: set[int] = set()  # that the graph writes to

    def check(self, target: object, args: tuple[Any, ...], kwargs: dict[str, Any], written: list[Any]) -> None:
        """Look at one operation, after it has run on fakes."""
        self.storages.update(map(self.propagation.root, written))
        with torch._C.DisableTorchFunction():
            self.found = self.found or self._unfaithful(target, args, kwargs, written)

    def _unfaithful(self, target: object, args: tuple[Any, ...], kwargs: dict[str, Any], written: list[Any]) -> str:
        if any(map(overlaps_itself, written)):
            return "a write to a tensor that overlaps itself"
        given = [*tensors_in(args), *tensors_in(kwargs)]
        if len(given) == 1:
            return ""
        if target is operator.setitem and _is_basic(args[1]):
            if not self._share(args[0], args[2]):
                return ""
            part = None if _numbers(args[0]) is None else args[0][args[1]]
            if part is None or may_overlap(part, args[2]) and not is_same(part, args[2]):
                return "an assignment to a part of a tensor from another part that overlaps it"
            return ""
        waiting = list(map(id, written))
        read = []
        for tensor in given:
            if id(tensor) in waiting:
                waiting.remove(id(tensor))
            else:
                read.append(tensor)
        for number, tensor in enumerate(written):
            if any(self._share(tensor, other) and may_overlap(tensor, other) for other in written[:number]):
                return "an operation that writes twice to one memory"
        in_place = len(written) == 1 and (target == "copy_" or is_pointwise(target))
        overlaps = any(self._share(tensor, other) and not (in_place and is_same(tensor, other))
                       and may_overlap(tensor, other) for tensor in written for other in read)
        return "an operation that reads the memory it writes to" if overlaps else ""

    def _share(self, a: object, b: object) -> bool:
        if type(a) is not FakeTensor or type(b) is not FakeTensor:
            return False
        storage = storage_of(a)
        return storage != 0 and (storage == storage_of(b) or self.propagation.is_known_to_share(a, b))


def _is_basic(index: object) -> bool:
    """Whether `x[index]` is a view."""
    items = index if type(index) is tuple else (index,)
    return all(type(item) in _BASIC_INDEX for item in items)


def is_pointwise(target: object) -> bool:
    """Whether an operator computes each element from those at the same place."""
    return torch.Tag.pointwise in tags_of(target)


def wants_gradient(value: object) -> bool:
    """Whether a backward pass may go through a result of a node."""
    return any(isinstance(each, torch.Tensor) and each.requires_grad for each in tensors_in(value))


def is_same(a: Any, b: Any) -> bool:
    """Whether two tensors on one storage are the same elements in the same order."""
    return a is b or _layout(a) == _layout(b) and a.dtype == b.dtype


def _layout(tensor: torch.Tensor) -> list[Any]:
    return [each if type(each) is int else each.node.expr
            for each in (tensor.storage_offset(), *tensor.shape, *tensor.stride())]


def _numbers(tensor: torch.Tensor) -> tuple[int, list[tuple[int, int]]] | None:
    """Offset, and (stride, size) of each dimension that moves; None where one of them is a symbol."""
    offset, sizes, strides = tensor.storage_offset(), tensor.shape, tensor.stride()
    if any(type(each) is not int for each in (offset, *sizes, *strides)):
        return None
    return offset, [(stride, size) for stride, size in zip(strides, sizes, strict=True) if size != 1]


def overlaps_itself(tensor: torch.Tensor) -> bool:
    if tensor.layout is not torch.strided:
        return False
    found = _numbers(tensor)
    if found is None:  # whichever sizes: views that repeat elements have a stride of 0, or of less than what lies below
        return any(type(stride) is int and not stride and type(size) is not int
                   for stride, size in zip(tensor.stride(), tensor.shape, strict=True))
    reach = 0
    for stride, size in sorted(found[1]):
        if not size:
            return False
        if stride <= reach:
            return True
        reach += stride * (size - 1)
    return False


def repeats_elements(tensor: torch.Tensor) -> bool:
    """A pure reader for guards: whether an input overlaps itself."""
    with torch._C.DisableTorchFunction():
        return overlaps_itself(tensor)


def inputs_that_may_repeat(inputs: list[Any], storages: set[int]) -> list[Any]:
    """Inputs that the graph writes to, and that overlap themselves at some of the sizes that it accepts."""
    return [each for each in inputs if is_dense(each.tensor) and type(each.fake) is FakeTensor
            and storage_of(each.fake) in storages and _may_repeat(each.fake)]


def _may_repeat(fake: FakeTensor) -> bool:
    """Whether each stride of open sizes is the extent of the dimensions below it: then no element is repeated."""
    if _numbers(fake) is not None:
        return overlaps_itself(fake)
    pairs = [pair for pair in zip(fake.stride(), fake.shape, strict=True) if type(pair[1]) is not int or pair[1] != 1]
    if any(hint_of(stride) is None or hint_of(size) is None for stride, size in pairs):
        return True
    extent: int | torch.SymInt = 1
    for stride, size in sorted(pairs, key=lambda pair: (hint_of(pair[0]), hint_of(pair[1]))):
        if not statically_known_true(stride >= extent):
            return True
        extent = stride * size
    return False


def may_overlap(a: Any, b: Any) -> bool:
    """Whether two tensors on one storage may have an element in common; True where that cannot be decided."""
    first, second = _numbers(a), _numbers(b)
    if first is None or second is None or a.itemsize != b.itemsize:
        return True
    if not a.numel() or not b.numel():
        return False
    begin = min(first[0], second[0])
    strides = sorted({stride for _, dims in (first, second) for stride, _ in dims if stride}, reverse=True)
    digits = [_digits(offset - begin, dims, strides) for offset, dims in (first, second)]
    if digits[0] is None or digits[1] is None:
        return _reach(*first) > second[0] and _reach(*second) > first[0]
    return all(low <= other_high and other_low <= high
               for (low, high), (other_low, other_high) in zip(digits[0], digits[1], strict=True))


def _reach(offset: int, dims: list[tuple[int, int]]) -> int:
    return offset + sum(stride * (size - 1) for stride, size in dims) + 1


def _digits(offset: int, dims: list[tuple[int, int]], strides: list[int]) -> list[tuple[int, int]] | None:
    """Places of a tensor as ranges of digits in the number system of these strides; None where a digit carries over."""
    sizes = {stride: size for stride, size in dims if stride}
    if len(sizes) != sum(bool(stride) for stride, _ in dims):
        return None
    found = []
    for stride in strides:
        digit, offset = divmod(offset, stride)
        found.append((digit, digit + sizes.get(stride, 1) - 1))
    found.append((offset, offset))
    reach = 0
    for (_, high), stride, above in zip(reversed(found), [1, *reversed(strides)], [*reversed(strides), 0], strict=True):
        reach += high * stride
        if above and reach >= above:
            return None
    return found


def overlapping_inputs(inputs: Iterable[Any], written: set[int]) -> bool:
    """Whether two inputs overlap on one of the storages that a graph writes to."""
    by_storage: dict[int, list[Any]] = {}
    for each in inputs:
        if type(each.fake) is FakeTensor:
            by_storage.setdefault(storage_of(each.fake), []).append(each.fake)
    with torch._C.DisableTorchFunction():
        return any(may_overlap(fake, other) for storage in written.intersection(by_storage)
                   for number, fake in enumerate(by_storage[storage]) for other in by_storage[storage][:number])


@dataclass(frozen=True, eq=False)
class Choice:
    """A merged tensor: which tensor of before it is where the branch was taken, and where it was not."""

    condition: Any
    when_true: Any  # a fake of before the branch, or None: a new tensor
    when_false: Any


@dataclass
class Uncertain:
    """Every such tensor of one trace."""

    storages: dict[int, set[int]] = field(default_factory=dict)  # of a merged tensor -> those it may be part of
    choices: dict[int, Choice] = field(default_factory=dict)  # by id of the merged fake
    kept: list[Any] = field(default_factory=list)

    def note(self, merged: object, candidates: Iterable[Any], choice: Choice | None) -> None:
        """`merged` may share memory with these tensors of before."""
        self.kept.append((merged, list(candidates)))
        direct = {storage_of(each) for each in candidates}  # some of them may be uncertain themselves
        self.storages[storage_of(merged)] = direct.union(*(self.storages.get(each, ()) for each in direct))
        if choice is not None:
            self.choices[id(merged)] = choice

    def concerns(self, tensor: torch.Tensor) -> bool:
        storage = storage_of(tensor)
        return storage in self.storages or any(storage in others for others in self.storages.values())

    def check(self, target: object, in_place: bool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        name = getattr(target, "__name__", target)
        if not in_place and name not in _TELLING:
            return
        for value in (*args, *kwargs.values()):
            if type(value) is FakeTensor and self.concerns(value):
                raise Break("SB002", f"{name} of a tensor that a captured branch may have left as it was")

    def conflict(self, outputs: list[Any], inputs: list[Any]) -> bool:
        """Whether something outside could see that a merged tensor is not the tensor it may have been."""
        tensors = [each for each in outputs if type(each) is FakeTensor]
        visible = {storage_of(each) for each in (*tensors, *inputs)}
        seen: set[int] = set()
        for each in tensors:
            if id(each) in self.choices:
                continue  # the residual finds out
            others = self.storages.get(storage_of(each), set())
            if others & (visible | seen):
                return True
            seen |= others
        return False
