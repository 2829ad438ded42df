"""Arguments of classes that pytree knows, for functions marked with nonstrict_trace.   f(Point(x, y))  ->  f'(x, y)

In: a call.  Out: a node that calls the function by the leaves of its arguments: it makes the objects again, as pytree
does, and gives the leaves of its result.  `flatten` of the arguments and `unflatten` of the result are interpreted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from stator.breaks import Break
from stator.guards.guard import is_constant
from stator.heap.outside_changes import changed_trackers
from stator.heap.reached_state import Reach
from stator.host.value_kinds import is_a
from stator.interp.services import VM

_OWN = frozenset(pytree.BUILTIN_TYPES)
_Build = Callable[[Iterator[Any]], Any]


def is_registered(cls: type) -> bool:
    return cls in pytree.SUPPORTED_NODES and cls not in _OWN


def taken_apart(vm: VM, what: str, value: Any, plain: Callable[[Any], Any], leaves: list[Any]) -> _Build:
    """Add the leaves of a value to `leaves`; return how to make the value of such; `plain` checks a leaf."""
    cls = type(value)
    if is_registered(cls):
        known = pytree.SUPPORTED_NODES[cls]
        parts = vm.call_sync(known.flatten_fn, (value,), {})
        if type(parts) is not tuple or len(parts) != 2 or type(parts[0]) not in (list, tuple):
            raise Break("SB005", f"a {cls.__name__} passed to {what}, which pytree cannot take apart")
        vm.heap.expose_deep(parts)
        children, context = parts
        if not is_constant(context) and context != () and context is not None:
            raise Break("SB005", f"a {cls.__name__} passed to {what}, with a context that is no constant")
        make = taken_apart(vm, what, list(children), plain, leaves)
        return lambda items: known.unflatten_fn(make(items), context)
    if cls is list or cls is tuple:
        makes = [taken_apart(vm, what, item, plain, leaves) for item in value]
        return lambda items: cls([each(items) for each in makes])
    if cls is dict:
        named = {key: taken_apart(vm, what, item, plain, leaves) for key, item in value.items()}
        return lambda items: {key: each(items) for key, each in named.items()}
    tracker = vm.heap.tracker_of(value)
    if tracker is not None and is_a(tracker.original, torch.nn.Module):
        module = vm.guard_identity(value)
        if (changed := changed_trackers(vm.heap)) and Reach((module,)).may_read(changed):
            raise Break("SB006", f"{what}, after a change of a module that it is given")
        return lambda items: module
    leaves.append(plain(value))
    return next


def put_together(vm: VM, spec: pytree.TreeSpec, leaves: Iterator[Any]) -> Any:
    """The result of the function, made of the leaves that the node gave."""
    if spec.is_leaf():
        return next(leaves)
    children = [put_together(vm, each, leaves) for each in spec.children()]
    make = pytree.SUPPORTED_NODES[spec.type].unflatten_fn
    if spec.type in _OWN:
        return make(children, spec.context)
    return vm.call_sync(make, (children, spec.context), {})

