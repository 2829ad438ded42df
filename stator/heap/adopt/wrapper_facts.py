"""Facts about wrapper subclasses.   a TwoTensor from outside  ->  guards on its inner tensors and its context"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from stator.graph.metadata.input_layouts import acts_as_wrapper
from stator.graph.record.wrapper_subclasses import flatten, same_flattening
from stator.guards.guard import Kind
from stator.heap.raw_access import instance_dict
from stator.heap.services import Heap
from stator.source import Attr, CallOf, DictOf, Key, Pinned, Source


def guard_parts(heap: Heap, tensor: torch.Tensor, source: Source, wrapper: object) -> None:
    """What a compiled graph relies on beside the sizes: which inner tensors there are, their metadata, the context."""
    names, context = flatten(tensor)
    place = CallOf(Pinned(same_flattening), (source, Pinned(tuple(names)), Pinned(context)))
    heap.guard(place, Kind.FRESH_CALL, True)
    for name in names:
        inner, inner_source = getattr(tensor, name), part_source(tensor, source, name)
        fake = getattr(wrapper, name)
        if type(fake) is FakeTensor and fake._has_symbolic_sizes_strides:
            outer = heap.recorder.wrappers.outers[id(wrapper)]
            heap.recorder.wrappers.define_part(outer, name, fake, inner_source)
        heap.guard(inner_source, Kind.TENSOR, heap.recorder.meta_of(inner, fake))
        if acts_as_wrapper(type(inner)):
            guard_parts(heap, inner, inner_source, fake)


def open_parts(heap: Heap, tensor: torch.Tensor, source: Source) -> dict[str, Any]:
    """The dimensions of each inner tensor that become symbols."""
    return {name: heap.shapes.open_dims(getattr(tensor, name), part_source(tensor, source, name))
            for name in flatten(tensor)[0]}


def part_source(tensor: torch.Tensor, source: Source, name: str) -> Source:
    own = instance_dict(tensor)
    return Key(DictOf(source), name) if own is not None and name in own else Attr(source, name)


def leaf_sources(tensor: torch.Tensor, source: Source) -> list[tuple[Any, Source]]:
    """The plain tensors that a tensor is made of, and where they are."""
    if not acts_as_wrapper(type(tensor)):
        return [(tensor, source)]
    return [leaf for name in flatten(tensor)[0]
            for leaf in leaf_sources(getattr(tensor, name), part_source(tensor, source, name))]
