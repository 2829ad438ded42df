"""Iteration by C code.   sum(x * 2 for x in xs)  ->  an interpreted loop;  zip(iter(xs), ys)  ->  xs, ys are exposed

    plan(descriptor, arguments, keywords)  ->  a polyfill of this module and its arguments, or None

A C function that iterates over Python code would run the loop below the interpreter: a graph break in it could not be
resumed.  Polyfills do the same in the same order, one item at a time.  They read no globals: callees are arguments.
Tracebacks and stacks leave out their frames.
"""

from __future__ import annotations

import collections
import functools
import gc
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from stator.host.value_kinds import is_a, mro_of, name_in_errors
from stator.interp.frame import Continuation, Frame, Raised
from stator.interp.lookup import MISSING, find
from stator.interp.numbers.symbolic_numbers import reaches_symbol
from stator.interp.services import VM
from stator.native.rows_declare import ROWS
from stator.shapes.symbolic_values import UNREAD, python_type

_CONTAINERS = (list, tuple, dict, set, frozenset, collections.deque)
_FORWARD: tuple[Any, ...] = ([], (), {}, {}.values(), {}.items(), set(), collections.deque())
_BACKWARD: tuple[Any, ...] = ([], {}, {}.values(), {}.items(), collections.deque())
C_ITERATORS: frozenset[type] = frozenset({
    *(type(iter(each)) for each in _FORWARD), *(type(reversed(each)) for each in _BACKWARD),
    reversed, enumerate, zip, map, filter, *(each for each in vars(itertools).values() if isinstance(each, type)),
})
_VIEWS = frozenset({type({}.values()), type({}.items())})
_NUMBERS = frozenset({int, float, bool})
_NOTHING = object()
Plan = tuple[Callable[..., Any], tuple[Any, ...]]
_PAIRS = (type, frozenset({list, tuple}), len, dict.update)


def is_iterator(cls: type) -> bool:
    return any("__next__" in base.__dict__ for base in mro_of(cls))


class IteratorOf(Continuation):
    """After a Python `__iter__`: refuse a result that has no `__next__`."""

    __slots__ = ("cont",)
    resumes = True

    def returned(self, vm: VM, frame: Frame, value: object) -> None:
        cls = type(value)
        if cls not in UNREAD and not is_iterator(cls) and not is_overlaid_iterator(vm, cls):
            raise Raised(TypeError(f"iter() returned non-iterator of type '{name_in_errors(python_type(value))}'"))
        vm.give(value, self.cont)


def is_overlaid_iterator(vm: VM, cls: type) -> bool:
    """Whether the trace gave the class a `__next__`; guards that it has none otherwise. False below a native frame."""
    return hasattr(vm, "mechanisms") and find(vm, cls, "__next__") is not MISSING


def containers_behind(value: object) -> Iterator[Any]:
    """The containers that a C iterator, and the C iterators behind it, hold on to; nothing for any other value."""
    pending, seen = [value] if type(value) in C_ITERATORS else [], set()
    while pending:
        each = pending.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        for held in gc.get_referents(each):
            if type(held) in C_ITERATORS:
                pending.append(held)
            elif is_a(held, _CONTAINERS):
                if type(held) is tuple:  # of the iterators that zip and map take from; zip_longest empties places of it
                    items = gc.get_referents(held)
                    pending += [item for item in items if type(item) in C_ITERATORS]
                    held = held if len(items) == len(held) else tuple(items)
                yield held


def is_to_be_read(vm: VM, value: object, consumer: object) -> bool:
    """Whether a C iterator (or a view of values to be hashed) reaches unread places, or symbolic numbers."""
    by_standin = vm.heap.by_standin
    hashed = type(value) in _VIEWS and ROWS[id(consumer)].hashes_walked
    behind = gc.get_referents(value) if hashed else containers_behind(value)
    return any(id(held) in by_standin or reaches_symbol((held,), None) for held in behind)


class Again(Continuation):
    """Put the list of items in the place of its iterable, `above` places below the top; run the instruction again."""

    __slots__ = ("above",)
    resumes, plain = True, ("above",)

    def returned(self, vm: VM, frame: Frame, value: object) -> None:
        frame.stack.insert(len(frame.stack) - self.above, value)
        frame.ip -= 1


def listed(iterable: Iterable[Any]) -> list[Any]:
    return [item for item in iterable]  # noqa: C416  a comprehension's instructions are the loop that is wanted


def some_listed(iterable: Iterable[Any], limit: int) -> list[Any]:
    """At most `limit` items."""
    items: list[Any] = []
    for item in iterable:
        items += (item,)
        if not limit - 1:
            break
        limit -= 1
    return items


def given_list(iterable: Iterable[Any], function: Callable[..., Any], rest: tuple[Any, ...],
               keywords: dict[str, Any]) -> Any:
    """For functions that take all items first, and only then look at any."""
    return function([item for item in iterable], *rest, **keywords)  # noqa: C416


def in_set(iterable: Iterable[Any]) -> set[Any]:
    return {item for item in iterable}  # noqa: C416


def any_of(iterable: Iterable[Any]) -> bool:
    for item in iterable:  # noqa: SIM110  as above
        if item:
            return True
    return False


def all_of(iterable: Iterable[Any]) -> bool:
    for item in iterable:  # noqa: SIM110
        if not item:
            return False
    return True


def summed(iterable: Iterable[Any], total: Any, kind: Any, numbers: Any, add_up: Any) -> Any:
    """Plain numbers are left to `sum`, which may add them more exactly than one by one."""
    pending: list[Any] = []
    for item in iterable:
        if kind(item) in numbers and kind(total) in numbers:
            pending += (item,)
        else:
            if pending:
                total = add_up(pending, total)
                pending = []
            total = total + item
    return add_up(pending, total) if pending else total


def least(iterable: Iterable[Any], key: Any, default: Any, nothing: Any, refuse: Any) -> Any:
    best = bound = nothing
    for item in iterable:
        value = item if key is None else key(item)
        if bound is nothing or value < bound:
            best, bound = item, value
    if bound is not nothing:
        return best
    return refuse([]) if default is nothing else default


def greatest(iterable: Iterable[Any], key: Any, default: Any, nothing: Any, refuse: Any) -> Any:
    best = bound = nothing
    for item in iterable:
        value = item if key is None else key(item)
        if bound is nothing or value > bound:
            best, bound = item, value
    if bound is not nothing:
        return best
    return refuse([]) if default is nothing else default


def reduced(iterable: Iterable[Any], function: Any, value: Any, nothing: object, refuse: Any) -> Any:
    for item in iterable:
        value = item if value is nothing else function(value, item)
    return refuse(function, []) if value is nothing else value


def each_given(iterable: Iterable[Any], function: Callable[..., Any], target: object) -> None:
    """list.extend is list.append of each; set.update is set.add."""
    for item in iterable:
        function(target, item)


def in_dict(iterable: Iterable[Any], target: Any, new: bool, kind: Any, sequences: Any, count: Any,
            update: Any) -> Any:
    """Pairs as dict() takes them; one that is none is shown to dict.update at its place, which raises the error."""
    seen: list[Any] = []
    for pair in iterable:
        if kind(pair) in sequences and count(pair) == 2:
            target[pair[0]] = pair[1]
        else:
            update(target, [*seen, pair])
        seen += (pair,)
    return target if new else None


def contained(iterable: Iterable[Any], wanted: object, found: bool, start: Any, refused: Any, text: str) -> bool:
    """`in`: C code replaces a TypeError of `__iter__`."""
    iterator = None
    try:
        iterator = start(iterable)
    except refused:
        pass
    if iterator is None:
        raise refused(text)
    for item in iterator:
        if item is wanted or item == wanted:
            return found
    return not found


def joined(iterable: Iterable[Any], separator: str, join: Any, start: Any, refused: Any) -> str:
    """str.join and bytes.join: C code replaces a TypeError of `__iter__`."""
    iterator = None
    try:
        iterator = start(iterable)
    except refused:
        pass
    if iterator is None:
        raise refused("can only join an iterable")
    return join(separator, [item for item in iterator])  # type: ignore[no-any-return]  # noqa: C416


def looked_at(value: object) -> object:
    """The value; the interpreter's rule for this function shows what it holds to C code first."""
    return value


def each_looked_at(iterable: Iterable[Any], look: Any) -> Iterator[Any]:
    for item in iterable:
        yield look(item)


def counted(iterable: Iterable[Any], mapping: Any) -> None:
    """collections.Counter's loop."""
    for item in iterable:
        mapping[item] = mapping.get(item, 0) + 1


def plan(descriptor: object, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> tuple[int, Plan] | None:
    """Which argument a call runs through, and the loop that does the same; None where there is none."""
    planner = PLANNERS.get(id(descriptor))
    return None if planner is None else planner(descriptor, args, kwargs or {})


def _exactly(count: int, loop: Callable[..., Plan]) -> Callable[..., Any]:
    """A planner of calls with `count` arguments, of which the last is iterated, and no keywords."""
    return lambda descriptor, args, kwargs: (count - 1, loop(*args)) if len(args) == count and not kwargs else None


def _taken_first(*keywords: str) -> Callable[..., Any]:
    def planner(descriptor: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not args or kwargs.keys() - {*keywords}:
            return None
        return 0, (given_list, (args[0], descriptor, args[1:], kwargs))
    return planner


def _sum(descriptor: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    start = args[1] if len(args) == 2 else kwargs.get("start", 0)
    if len(args) + len(kwargs) > 2 or not args or set(kwargs) - {"start"} or type(start) in (str, bytes, bytearray):
        return None
    return 0, (summed, (args[0], start, type, _NUMBERS, sum))


def _extreme(function: Callable[..., Any]) -> Callable[..., Any]:
    def planner(descriptor: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if len(args) != 1 or set(kwargs) - {"key", "default"}:
            return None
        default = kwargs.get("default", _NOTHING)
        return 0, (function, (args[0], kwargs.get("key"), default, _NOTHING, descriptor))
    return planner


def _reduce(descriptor: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if len(args) not in (2, 3) or kwargs:
        return None
    return 1, (reduced, (args[1], args[0], args[2] if len(args) == 3 else _NOTHING, _NOTHING, descriptor))


PLANNERS: dict[int, Any] = {id(function): planner for function, planner in (
    (list, _exactly(1, lambda items: (listed, (items,)))), (set, _exactly(1, lambda items: (in_set, (items,)))),
    (any, _exactly(1, lambda items: (any_of, (items,)))), (all, _exactly(1, lambda items: (all_of, (items,)))),
    (sum, _sum), (min, _extreme(least)), (max, _extreme(greatest)), (functools.reduce, _reduce),
    (tuple, _taken_first()), (frozenset, _taken_first()), (sorted, _taken_first("key", "reverse")),
    (math.prod, _taken_first("start")), (math.fsum, _taken_first()),
    (collections.deque, _taken_first("maxlen")),
    (str.join, _exactly(2, lambda text, items: (joined, (items, text, str.join, iter, TypeError)))),
    (list.extend, _exactly(2, lambda target, items: (each_given, (items, list.append, target)))),
    (set.update, _exactly(2, lambda target, items: (each_given, (items, set.add, target)))),
    (dict, _exactly(1, lambda items: (in_dict, (items, {}, True, *_PAIRS)))),
    (dict.update, _exactly(2, lambda target, items: (in_dict, (items, target, False, *_PAIRS)))),
    (collections._count_elements,  # type: ignore[attr-defined]
     _exactly(2, lambda mapping, items: (counted, (items, mapping)))),
)}
