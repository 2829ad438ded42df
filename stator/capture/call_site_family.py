"""Entries that other compile() calls of a function have made.   for layer in layers: layer.compile()  ->  one graph

In: a site that has no entry for a call, and the sites of the same function under the same settings.  Out: an entry of
theirs with a guard program for this site, or None.  CUDA graphs are recorded for addresses: each site has its own.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import torch

from stator import _core
from stator.cache.dispatch import update_dispatch
from stator.capture.call_site import CallSite
from stator.capture.first_call import Installed
from stator.heap.raw_access import instance_dict
from stator.host.garbage_collection import living
from stator.host.value_kinds import is_a
from stator.settings.options import Settings
from stator.shapes.tensor_marks import DYNAMIC_MARK, UNBACKED_MARK, WEAK_MARK

_SIZES_MARKS = (DYNAMIC_MARK, WEAK_MARK, UNBACKED_MARK)
_TRIED = 8  # entries of others that a miss looks at, the newest first
_members: weakref.WeakKeyDictionary[types.FunctionType, weakref.WeakSet[Any]] = weakref.WeakKeyDictionary()


def join_family(compiled: object, function: types.FunctionType) -> None:
    """From now on this place gives its entries to others of the same function, and takes theirs."""
    _members.setdefault(function, weakref.WeakSet()).add(compiled)


def entry_of_another(site: CallSite, bound: tuple[Any, ...]) -> tuple[Any, Any, Installed] | None:
    """An entry that accepts the call, as this place may install it."""
    if site.point is not None or site.settings.isolate_recompiles:
        return None
    others = [other for other in living(_members.get(site.fn, weakref.WeakSet())) if other is not site.compiled]
    if not others or is_marked(bound):
        return None
    own = {id(tag) for _, _, tag in site.compiled.entries()}
    receiver = type(bound[0]) if bound else None
    seen: dict[int, tuple[Any, Any]] = {}
    for other in others:
        if is_alike(other._stator_site, site):
            seen.update({id(tag): (function, tag) for _, function, tag in other.entries()
                         if is_given(tag) and tag.receiver is receiver})
    for number, (function, tag) in sorted(seen.items(), key=lambda item: -item[1][1].number)[:_TRIED]:
        if number not in own:
            lowered = tag.program
            program = _core.GuardProgram(lowered.nodes, lowered.checks, lowered.wanted, len(bound), tag.residual.packed)
            if program.check(bound) == -1:
                return program, function, tag
    return None


def is_marked(arguments: tuple[Any, ...]) -> bool:
    """Whether the user marks which sizes of a tensor among these are open: no entry was made with that."""
    waiting, seen = list(arguments), set()
    while waiting:
        value = waiting.pop()
        if type(value) in (tuple, list):
            if id(value) not in seen:  # a list may hold itself
                seen.add(id(value))
                waiting += value
        elif is_a(value, torch.Tensor):
            own = instance_dict(value)
            if own is not None and not own.keys().isdisjoint(_SIZES_MARKS):
                return True
    return False


def is_given(tag: Installed | None) -> bool:
    """Whether an entry may serve others: one with a graph, of which all facts are in its guard program."""
    return tag is not None and tag.residual is not None and tag.residual.graph is not None and not tag.under_locks


def is_alike(one: CallSite, other: CallSite) -> bool:
    return (one.is_nested == other.is_nested and one.stance.backend is other.stance.backend
            and same_settings(one.settings, other.settings))


def same_settings(one: Settings, other: Settings) -> bool:
    """Equal in all but the names; a backend that is no name is compared by identity."""
    if one.backend is not other.backend and not (type(one.backend) is str and one.backend == other.backend):
        return False
    return all(getattr(one, each.name) == getattr(other, each.name) for each in fields(Settings)
               if each.name not in ("backend", "name"))


def use_backend(site: CallSite, backend: str | Callable[..., Callable[..., object]] | None) -> None:
    """Put aside what was compiled for the backend of now, and take up what was compiled for this one."""
    if site.stance.backend is backend:
        return
    compiled = site.compiled
    site.stance.put_aside[id(site.stance.backend)] = site.stance.backend, compiled.entries()
    compiled.clear()
    site.stance.backend = backend
    own = site.stance.own_settings  # whose mode and options are for its own backend
    site.settings = own if backend is None else replace(own, backend=backend, mode=None, options={})
    _, entries = site.stance.put_aside.pop(id(backend), (backend, []))
    for entry in reversed(entries):
        compiled.add_entry(*entry)
    update_dispatch(compiled)
