"""Jagged nested tensors.   NestedTensor[2, j1, 3]  ->  the same of fakes, whose ragged size is a symbol

The identity of a ragged size is that of the tensor of offsets (or lengths): one fake of it, one symbol.  Guards tell
which inputs have it in common.  torch's handlers of the class run on the fakes; they are not interpreted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TypeGuard

import torch
from torch import fx
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import CallMethodKey, DimDynamic, GuardOnDataDependentSymNode
from torch.nested._internal import nested_tensor
from torch.nested._internal.nested_tensor import NestedTensor
from torch.overrides import _pop_mode_temporarily
from torch.utils import _pytree as pytree

from stator.breaks import Break
from stator.graph.services import Recorder
from stator.shapes.environment import NamedSource
from stator.shapes.named_dimensions import Dim
from stator.shapes.symbolic_inputs import symbolic_fake
from stator.source import Attr, Source

# Functions of plain tensors whose results are jagged.
MAKERS = frozenset({nested_tensor.nested_view_from_values_offsets, nested_tensor.nested_from_padded,
                    nested_tensor.nested_view_from_values_offsets_lengths})
_MEMOS = ("constant", "pytype", "dispatch_keys", "real_tensor", "nonzero_memo", "item_memo", "unique_memo",
          "unique_consecutive_memo", "nested_int_memo")


def is_jagged(tensor: object) -> TypeGuard[NestedTensor]:
    return type(tensor) is NestedTensor


def ragged_part(tensor: NestedTensor) -> str:
    """The name of the inner tensor that the ragged size belongs to."""
    return "_offsets" if tensor._lengths is None else "_lengths"


def nested_facts(tensor: object) -> tuple[object, ...] | None:
    """A pure reader for guards: the facts of a jagged tensor that its inner tensors do not show."""
    if not is_jagged(tensor):
        return None
    with torch._C.DisableTorchFunction():
        return tensor.dtype, tensor.device, tensor.requires_grad, torch._C._dispatch_keys(tensor).raw_repr()


def ragged_groups(*tensors: object) -> tuple[int, ...]:
    """A pure reader for guards: which tensors have one ragged size, or would give it as offsets."""
    groups: dict[int, int] = {}
    owners = [getattr(each, ragged_part(each)) if is_jagged(each) else each for each in tensors]
    return tuple([groups.setdefault(id(owner), len(groups)) for owner in owners])


@contextlib.contextmanager
def own_handlers() -> Iterator[None]:
    """While torch's handlers for the class run, on fakes: no mode of the tracer sees what they do."""
    with contextlib.ExitStack() as stack:
        for _ in range(torch._C._len_torch_function_stack()):
            stack.enter_context(_pop_mode_temporarily())
        stack.enter_context(torch._C._EnableTorchFunction())
        yield


def outer_fake(mode: FakeTensorMode, wrapper: NestedTensor) -> FakeTensor:
    """The fake that the interpreter has of a jagged tensor: its sizes, and no kernel that would take them."""
    def bare(requires_grad: bool) -> FakeTensor:
        with torch._C._DisableTorchDispatch():
            fake: FakeTensor = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
                FakeTensor, wrapper._size, strides=wrapper._strides, dtype=wrapper.dtype, device=wrapper.device,
                dispatch_device=True, storage_size=0)
            fake.requires_grad_(requires_grad)
        for name in _MEMOS:
            setattr(fake, name, None)
        fake.fake_mode, fake.fake_device = mode, wrapper.device
        return fake

    if wrapper.is_leaf or not wrapper.requires_grad:
        return bare(wrapper.requires_grad)
    with torch.enable_grad():
        descendant: FakeTensor = _Descendant.apply(bare(True), bare)
    return descendant


class _Descendant(torch.autograd.Function):
    """A result of an operation on a tensor that requires grad."""

    @staticmethod
    def forward(ctx: object, ancestor: object, make: Callable[[bool], FakeTensor]) -> FakeTensor:  # type: ignore[override]
        return make(False)


class NestedInputs:
    """The jagged tensors of one trace."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.owners: dict[int, FakeTensor] = {}  # id of a real tensor of offsets or lengths -> its fake
        self.sources: list[Source] = []  # of jagged inputs

    def wrapper(self, tensor: NestedTensor, source: Source, parts: dict[str, torch.Tensor],
                dims: dict[str, dict[int, str | Dim]]) -> NestedTensor:
        """A jagged tensor of fakes, for one from outside; `dims`: of each part, which become symbols."""
        fakes = {name: self._made(part, Attr(source, name), dims.get(name, {}), name in ("_offsets", "_lengths"))
                 for name, part in parts.items()}
        name = ragged_part(tensor)
        if fakes[name].nested_int_memo is None:
            fakes[name].nested_int_memo = self._ragged_size(parts[name], Attr(source, name))
        self.sources.append(source)
        context = tensor.__tensor_flatten__()[1]
        sizes = {context["ragged_idx"]: fakes[name].nested_int_memo}
        made: NestedTensor = NestedTensor.__tensor_unflatten__(fakes, context, sizes, None)
        return made

    def _made(self, part: torch.Tensor, source: Source, dims: dict[int, str | Dim], is_owner: bool) -> FakeTensor:
        recorder = self.recorder
        found = self.owners.get(id(part))
        if found is None and is_owner:
            found = next((each.fake for each in recorder.inputs if each.tensor is part), None)
        if found is None:
            found = symbolic_fake(recorder.fake_mode, part, source, dims)
        if is_owner:
            self.owners[id(part)] = found
        return found

    def _ragged_size(self, owner: torch.Tensor, source: Source) -> torch.SymInt:
        env, known = self.recorder.symbols.shape_env, nested_tensor.get_tensor_symint(owner)
        place = NamedSource(source)
        found: torch.SymInt = env.ragged[env.create_symbol(known, place, DimDynamic.DYNAMIC)]
        return found

    def define(self, node: fx.Node, wrapper: NestedTensor) -> None:
        """The node of a jagged tensor, from which the graph reads its ragged size."""
        symbol, dim = wrapper._size[wrapper._ragged_idx].node.expr, wrapper._ragged_idx
        path = (CallMethodKey("size"), pytree.SequenceKey(dim))
        self.recorder.symbols.define_ragged(symbol, node, path)

    def define_made(self, node: fx.Node) -> None:
        """The same for a result of an operation."""
        example = node.meta.get("example_value")
        if is_jagged(example):
            self.define(node, example)

    def attempt(self, func: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """Call a function on jagged tensors of fakes, as the handler of their class has it."""
        name = getattr(func, "__name__", func)
        try:
            with own_handlers(), self.recorder.symbols.dispatcher(), self.recorder.fake_mode:
                return func(*args, **kwargs)
        except Break:
            raise
        except (GuardOnDataDependentSymNode, fake_tensor.DataDependentOutputException,
                fake_tensor.DynamicOutputShapeException) as error:
            raise Break("SB003", f"{name} of a jagged tensor: {error}") from None
        except Exception as error:  # eager decides whether it is right
            raise Break("SB017", f"{name} of a jagged tensor: {error}".partition("\n")[0]) from None

    def add_guard(self, guard_call: Callable[..., None]) -> None:
        """Guard which inputs have a ragged size in common."""
        recorder = self.recorder
        plain = [each.source for each in recorder.inputs if type(each.fake) is FakeTensor
                 and each.fake.nested_int_memo is not None and each.tensor is not None]
        places = list(dict.fromkeys([*self.sources, *plain]))
        if len(places) > 1:
            tensors = {each.source: each.tensor for each in recorder.inputs}
            guard_call(ragged_groups, ragged_groups(*[tensors[place] for place in places]), *places)
