"""Inputs whose layout the program changes in place.   x.transpose_(0, 1); x.shape[1]  ->  compilers see x as it came

In: the tensors that an operation may change, before it does.  Out: whether it gave one another layout, and for each
input of the graph a fake as it was when the call began: a fake that was reshaped says at the end how it is left, and
neither a compiler nor who reads sizes off the inputs may take that for what it is given.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from stator.graph.services import Recorder


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
        """Let the node of an input, and compilers, see it as it comes."""
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
                example = fake.new_empty((_extent(*first),)).as_strided(*first)
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


def _extent(sizes: Iterable[Any], strides: Any, offset: Any) -> Any:
    """How many elements a storage must have for this layout."""
    return offset + 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))


def _same(one: Any, other: Any) -> bool:
    """The same number, or the same expression: nothing is asked, as an answer would be a guard."""
    if type(one) is torch.SymInt or type(other) is torch.SymInt:
        return type(one) is type(other) and one.node.expr == other.node.expr
    return bool(one == other)
