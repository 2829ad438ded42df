"""Fakes and layouts of inputs.   a parameter, float32[64, 64]  ->  its fake, in a tenth of the time

Out: which classes of tensors are traced as plain ones; fakes of plain inputs without torch's converter; and for each
input a fake as it was when the call began, since in-place operations may change its layout.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import torch
import torch.utils.dlpack
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from stator import _core
from stator.graph.metadata.propagation import ExactNeeded, Fakes
from stator.graph.services import Recorder
from stator.host.value_kinds import dict_of_class, mro_of
from stator.source import Source

PLAIN_CLASSES = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Buffer})
_BASES = frozenset({torch.nn.Parameter, torch.Tensor, torch._C.TensorBase, object})
_HARMLESS = frozenset("""
    __module__ __doc__ __new__ __init__ __dict__ __weakref__ __annotations__ __qualname__ __init_subclass__
    __firstlineno__ __static_attributes__ __annotate__ __annotations_cache__ __parameters__ __orig_bases__
    """.split())
# What C code asks of an object behind the interpreter's back.
_UNSPOKEN = frozenset("""
    __getattribute__ __del__ __index__ __int__ __float__ __complex__ __array__
    __array_wrap__ __dlpack__ __delattr__ __delitem__ __round__ __divmod__ __rdivmod__
    """.split())
CAPSULE = type(torch.utils.dlpack.to_dlpack(torch.empty(0)))  # no input: whoever takes the tensor out empties it


def acts_as_parameter(cls: type) -> bool:
    """A pure reader for guards: whether a subclass of Parameter only adds to it."""
    mro = mro_of(cls)
    if type(cls) is not type(torch.nn.Parameter) or torch.nn.Parameter not in mro:
        return False
    added = [name for base in mro if base not in _BASES for name in dict_of_class(base)]
    return not any(name not in _HARMLESS and (name.startswith("__") or hasattr(torch.nn.Parameter, name))
                   for name in added)


def acts_above_dispatch(cls: type) -> bool:
    """Whether a subclass is a plain tensor to torch's dispatcher, and all it changes can be interpreted."""
    return _own_dispatch(cls) is None and _is_spoken(cls)


def acts_as_wrapper(cls: type) -> bool:
    """Whether a subclass is a wrapper that compilers can take apart, and all else it changes can be interpreted."""
    return _own_dispatch(cls) is not None and _is_spoken(cls) \
        and hasattr(cls, "__tensor_flatten__") and hasattr(cls, "__tensor_unflatten__")


def _own_dispatch(cls: type) -> Any:
    for base in mro_of(cls):
        found = dict_of_class(base).get("__torch_dispatch__")
        if found is not None:
            return None if found is torch._C._disabled_torch_dispatch_impl else found
    return None


def _is_spoken(cls: type) -> bool:
    entries = [dict_of_class(base) for base in mro_of(cls) if base not in _BASES]
    return not any(name in own for own in entries for name in _UNSPOKEN) \
        and all(own.get("__hash__", torch.Tensor.__hash__) is torch.Tensor.__hash__ for own in entries)


class PlainInputs:
    """The storages of one trace's inputs, and which of them have a fake of their own."""

    def __init__(self, fakes: Fakes) -> None:
        self.fakes = fakes
        self.storages: dict[int, tuple[weakref.ref[torch.Tensor], FakeTensor] | None] = {}  # address -> input made here
        self.kept: list[torch.UntypedStorage] = []  # the converter refers to them weakly
        self.made: dict[int, tuple[Any, ...]] = {}  # ids of the fakes made here, which the recorder keeps -> how

    def fake(self, tensor: torch.Tensor, enabled: bool) -> FakeTensor | None:
        """The fake of a plain tensor; None where torch's converter has to make it (`enabled` False: always)."""
        memory = None if tensor.__dict__ or not enabled else _core.plain_tensor(tensor)
        if memory is None or memory[0] in self.storages:
            for each in converted_with(tensor):
                if each.layout is torch.strided and not (each.is_quantized or each.is_nested or each.is_meta) \
                        and (address := each.untyped_storage().data_ptr()):
                    self._give_to_converter(address)
            return None
        layout = tensor.shape, tensor.stride(), tensor.dtype, tensor.device, tensor.requires_grad
        return self._made_as(tensor, layout, isinstance(tensor, torch.nn.Parameter), memory[1])

    def _give_to_converter(self, address: int) -> None:
        """Let torch's converter know the fake of an input made here: another input shares its memory."""
        known, converter = self.storages.get(address), self.fakes.fake_mode.fake_tensor_converter
        self.storages[address] = None
        if known is not None:
            if (tensor := known[0]()) is None:
                raise ExactNeeded
            metas, self.kept = converter.meta_converter, [*self.kept, known[1].untyped_storage()]
            metas.storage_memo[metas.describer.get_storage_id(tensor.untyped_storage())] = self.kept[-1]
            converter.set_tensor_memo(tensor, known[1])

    def _made_as(self, tensor: torch.Tensor, layout: tuple[Any, ...], is_parameter: bool, nbytes: int) -> FakeTensor:
        with torch._C._DisableTorchDispatch():
            fake = self.fakes.make(*layout)
        if is_parameter:
            fake._is_param = True  # type: ignore[attr-defined]
        self.made[id(fake)] = layout, is_parameter, nbytes
        self.storages[tensor.untyped_storage().data_ptr()] = weakref.ref(tensor), fake
        return fake

    def alike(self, tensor: torch.Tensor, first: FakeTensor) -> FakeTensor | None:
        """The fake of a tensor with the guarded facts of `first`, a fake made here; None where others differ."""
        made, storage = self.made[id(first)], tensor.untyped_storage()
        address = storage.data_ptr()
        if address == 0 or storage.nbytes() != made[2] or not tensor.is_leaf or tensor._base is not None \
                or tensor.grad is not None or address in self.storages:
            return None
        return self._made_as(tensor, *made)


def converted_with(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """A tensor and the gradients behind it, for which torch's converter makes fakes at the same time."""
    following: torch.Tensor | None = tensor
    while following is not None:
        yield following
        try:
            following = following.grad if following.is_leaf or following.retains_grad else None
        except RuntimeError:  # of a view whose base was written to, at which the trace breaks
            return


def add_alike(recorder: Recorder, first: Any, tensor: torch.Tensor, source: Source, name: str) -> FakeTensor:
    """An input for a tensor of the class and metadata of another input; `name`: its name in the graph."""
    fake = None
    if id(first.fake) in recorder.plain_inputs.made and not recorder.wrappers.parts:
        with torch._C.DisableTorchFunction():
            fake = recorder.plain_inputs.alike(tensor, first.fake)
    if fake is None:
        return recorder.add_input(tensor, source)  # type: ignore[no-any-return]
    node = recorder.placeholder(fake, source, name)
    recorder.tie(fake, node)
    if id(first.fake) in recorder.classes:
        recorder.classes[id(fake)] = recorder.classes[id(first.fake)]
    recorder.add_graph_input(source, tensor, fake, node)
    return fake


class EntryLayouts:
    """The layouts of one graph's inputs that in-place operations have met."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._first: dict[int, tuple[Any, ...]] = {}  # id(fake) -> sizes, strides and offset at the beginning
        self._storages: dict[int, Any] = {}  # and its storage, which `set_` exchanges

    def before(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The layouts of the tensors that an in-place operation is about to get."""
        fakes = _fakes(args, kwargs)
        if self.recorder.scope.enclosing is None:
            for fake in fakes:
                node = self.recorder.nodes.get(id(fake))
                if node is not None and type(node) is fx.Node and node.op == "placeholder" \
                        and id(fake) not in self._first:
                    self._first[id(fake)] = _layout(fake)
                    self._storages[id(fake)] = _storage(fake)
        return self._read(fakes)

    def after(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        return self._read(_fakes(args, kwargs))

    def touched(self) -> list[Any]:
        """The graph's inputs of which an operation may have changed sizes, strides or storage; none if none did so."""
        recorder = self.recorder
        return [each for each in recorder.inputs if id(each.fake) in self._first] if recorder.log.reshaped else []

    def _read(self, fakes: list[FakeTensor]) -> list[Any]:
        return [self.recorder.propagation.tensor_key(fake) for fake in fakes]

    def restore(self, graph_input: Any) -> None:
        fake = graph_input.fake
        first = self._first.get(id(fake))
        if first is None:
            return
        now = _layout(fake)
        if len(first[0]) == len(now[0]) and all(_same(one, other) for one, other in zip(
                (*first[0], *first[1], first[2]), (*now[0], *now[1], now[2]), strict=True)):
            return
        with torch._C.DisableTorchFunction(), torch.no_grad(), self.recorder.symbols.dispatcher():
            if _storage(fake) is self._storages[id(fake)]:
                example = fake.detach().as_strided(*first)
            else:
                sizes, strides, offset = first
                extent = offset + 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
                example = fake.new_empty((extent,)).as_strided(*first)
        example.requires_grad_(fake.requires_grad)
        graph_input.example = graph_input.node.meta["example_value"] = example


def _fakes(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[FakeTensor]:
    return [value for value in pytree.tree_leaves((args, kwargs)) if type(value) is FakeTensor]


def _layout(fake: FakeTensor) -> tuple[Any, ...]:
    with torch._C.DisableTorchFunction():
        return tuple(fake.shape), fake.stride() if fake.layout is torch.strided else (), \
            fake.storage_offset() if fake.layout is torch.strided else 0


def _storage(fake: FakeTensor) -> Any:
    """A storage has one Python object for as long as somebody holds it."""
    return fake.untyped_storage() if fake.layout is torch.strided else None


def _same(one: Any, other: Any) -> bool:
    """Compare numbers or expressions without a guard."""
    if type(one) is torch.SymInt or type(other) is torch.SymInt:
        return type(one) is type(other) and one.node.expr == other.node.expr
    return bool(one == other)
