"""Inputs of a graph that stay where they are in memory.   mark_static_address(cache)  ->  a marked placeholder

In: the inputs of a graph, and the call it was captured from.  Out: the mark that torch's compilers look for, on the
placeholders; where the program asked for it, a guard on the address.

A compiler that records CUDA graphs copies every other input to a place of its own at each call, and records nothing
where the graph writes to one (a cache of keys and values).  Parameters and buffers stay (`backends/static_inputs.py`
knows them by where they were read); so do other tensors that a module holds, unless the program itself puts another one
there.
"""

from __future__ import annotations

from typing import Any

import torch

from stator.graph.analysis.shared_memory import address_of, is_member
from stator.guards.guard import Kind
from stator.guards.guard_semantics import Unreadable, evaluate
from stator.heap.adopt.wrapper_facts import leaf_sources
from stator.heap.box import Box
from stator.heap.heap import Heap
from stator.heap.raw_access import instance_dict
from stator.host.value_kinds import is_a
from stator.shapes.policy import ADDRESS_MARK
from stator.source import CallOf, DictOf, Key, Pinned, Source


def mark_static_addresses(heap: Heap, inputs: list[Any], bound: tuple[Any, ...]) -> None:
    """Note on each placeholder that its tensor stays, if it does."""
    members: set[Source] | None = None
    for each in inputs:
        if not is_a(each.tensor, torch.Tensor) or is_member(each.source):
            continue
        if members is None:
            members = seen_as_members(heap)
        told = (instance_dict(each.tensor) or {}).get(ADDRESS_MARK)
        if told == "guarded":
            for leaf, source in leaf_sources(each.tensor, each.source):
                heap.guard(CallOf(Pinned(address_of), (source,)), Kind.FRESH_CALL, address_of(leaf))
        elif not told and (each.source in members or is_held(heap, each, bound)):
            told = "unguarded"
        if told:
            each.node.meta["tensor_dict"] = {ADDRESS_MARK: told}


def seen_as_members(heap: Heap) -> set[Source]:
    """Places of tensors that were met again as a parameter or buffer."""
    return {guard.value for guard in heap.guards.single() if guard.kind is Kind.ALIAS and is_member(guard.source)}


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
