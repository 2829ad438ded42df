"""Adopt iterators from outside.   a list_iterator at position 1  ->  one of our own over the shadow list, at 1

The user's iterator is looked at through its `__reduce__`, which does not advance it; where it stands becomes a
guarded fact; how far the program moved the stand-in is written back by `stator/emit/rebuild/returned_iterators.py`.
"""

from __future__ import annotations

import collections
import functools
import gc
import itertools
import operator
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from stator import _hook
from stator.breaks import Break
from stator.guards.guard import Kind
from stator.heap.pure_readers import DICT_VIEWS, container_behind, readable, reduced, set_state
from stator.heap.services import Heap
from stator.heap.tracker import ShadowKind, VariableTracker, recorded
from stator.host.value_kinds import dict_of_class, is_a, mro_of
from stator.source import CallOf, Index, Pinned, Source


class _ByIndex:
    def __getitem__(self, index: int) -> int:
        raise IndexError


# The position is a number that `__setstate__` takes.
POSITIONED: frozenset[type] = frozenset({
    type(iter([])), type(reversed([])), type(iter(())), type(iter(range(0))), type(iter(range(1 << 70))),
    type(iter("")), type(iter("\u0100")), type(iter(b"")), type(iter(bytearray())), reversed,
})
# Those that ask objects of the program for their items, and let go of them at the end.
ASKING: frozenset[type] = frozenset({type(iter(_ByIndex())), type(iter(int, 0))})
# Iterators without a state of their own, beside that of the iterators they draw from.
STATELESS: frozenset[type] = readable(zip, map, filter, itertools.starmap, itertools.filterfalse, itertools.compress,
                                      itertools.zip_longest)
# Iterators that count, and are moved on by their own `__next__`.
COUNTING: frozenset[type] = readable(itertools.count, itertools.repeat)
# Iterators that count what they take from others, and are moved without asking those.
NUMBERING: frozenset[type] = readable(enumerate, itertools.islice)
# Iterators whose `__setstate__` takes what `__reduce__` gives.
STATEFUL: frozenset[type] = readable(itertools.chain, itertools.takewhile, itertools.dropwhile, itertools.accumulate,
                                     itertools.groupby)

WALKERS: dict[type, tuple[str, Callable[[Any], Any]]] = {
    type(iter({})): ("iter({})", iter),
    type(iter({}.values())): ("iter({}.values())", lambda d: iter(dict.values(d))),
    type(iter({}.items())): ("iter({}.items())", lambda d: iter(dict.items(d))),
    type(reversed({})): ("reversed({})", lambda d: dict.__reversed__(d)),
    type(reversed({}.values())): ("reversed({}.values())", lambda d: reversed(dict.values(d))),
    type(reversed({}.items())): ("reversed({}.items())", lambda d: reversed(dict.items(d))),
}
ADOPTED = POSITIONED | ASKING | STATELESS | COUNTING | NUMBERING | STATEFUL
# Iterators that yield what a call returns, which may be any object from outside, unread.
_CALLING = frozenset({map, itertools.starmap, itertools.accumulate, types.GeneratorType}) | ASKING
# What C code runs through without asking the program.
_PLAIN = (ADOPTED - ASKING | WALKERS.keys()) | {
    list, tuple, dict, set, frozenset, collections.deque, str, bytes, bytearray, range, types.GeneratorType,
    *DICT_VIEWS, type(iter(set())), type(iter(collections.deque())),
    itertools.pairwise, itertools.product, itertools.combinations, itertools.permutations}
_NUMBERS = (int, float, complex, bool)
_FUNCTIONS = (types.BuiltinFunctionType, types.WrapperDescriptorType, types.MethodDescriptorType, types.FunctionType,
              types.MethodWrapperType, types.ClassMethodDescriptorType)

# The first argument that is an iterator, where a function stands before it.
_ITERATORS_FROM: dict[type, int] = dict.fromkeys((
    map, filter, itertools.filterfalse, itertools.takewhile, itertools.dropwhile, itertools.starmap), 1)


def iterator_adopters(heap: Heap) -> dict[type, Any]:
    found: dict[type, Any] = dict.fromkeys(ADOPTED, functools.partial(adopt_reduced, heap))
    found.update(dict.fromkeys(WALKERS, functools.partial(adopt_walker, heap)))
    return found


@recorded
def adopt_reduced(heap: Heap, value: object, source: Source) -> Any:
    """An iterator whose `__reduce__` gives its whole state."""
    cls = type(value)
    heap.guard(source, Kind.TYPE, cls)
    make, args, state = reduced(value)
    base = CallOf(Pinned(reduced), (source,))
    heap.guard(Index(base, 1), Kind.LEN, len(args))
    refuse_unsettled(value, cls, args)
    adopted = [_part(heap, cls, part, Index(Index(base, 1), i), looks_into(cls, args, i))
               for i, part in enumerate(args)]
    new_state = _state(heap, cls, state, Index(base, 2), looks_into(cls, args, 0))
    given = tuple([Unasked(part) if would_be_asked(cls, i, part) else part for i, part in enumerate(adopted)])
    standin = ended(cls) if type(value) in ASKING and at_end(args) else heap.services.run_native(make, given)
    if new_state is not None:
        set_state(standin, new_state)
    heap.register(VariableTracker(standin, value, source, ShadowKind.ITERATOR, reduced(standin))).type_guarded = True
    return standin


class Unasked:
    """An iterator of a class with an `__iter__` in Python, which the program has called already."""

    __slots__ = ("iterator",)

    def __init__(self, iterator: Iterator[Any]) -> None:
        self.iterator = iterator

    def __iter__(self) -> Iterator[Any]:
        return self.iterator


def would_be_asked(cls: type, place: int, part: object) -> bool:
    """Whether making a C iterator anew would call the `__iter__` of an argument that is an iterator already."""
    found = [dict_of_class(base) for base in mro_of(type(part))]
    method = next((names["__iter__"] for names in found if "__iter__" in names), None)
    return method is not None and type(method) is not types.WrapperDescriptorType \
        and place >= _ITERATORS_FROM.get(cls, 0) and any("__next__" in names for names in found)


def refuse_unsettled(value: object, cls: type, args: tuple[Any, ...]) -> None:
    """Break at what `__reduce__` leaves out, or could not be written back."""
    if cls is itertools.accumulate and args[0] is not reduced(value)[1][0]:
        raise Break("SB014", "an accumulate from outside that has yet to yield its first item")
    if cls is itertools.groupby and reduced(value)[2] is not None:  # its last group is invalid once it moves
        raise Break("SB014", "a groupby from outside that has given a group")
    if cls is enumerate and args[1] > sys.maxsize >> 1:  # it may be moved on from here
        raise Break("SB014", "an enumerate from outside that comes near the largest C integer")
    if cls is reversed and type(getattr(type(args[0]), "__len__", None)) is types.FunctionType:  # each move calls it
        raise Break("SB014", "a reversed() from outside, over an object with a __len__ of its own")


def at_end(args: tuple[Any, ...]) -> bool:
    """Whether what an iterator was reduced to says that it has let go of what it asked."""
    return len(args) == 1 and type(args[0]) is tuple and not args[0]


def ended(cls: type) -> Iterator[int]:
    """An iterator of the class that has let go of what it asked."""
    made = iter(int, 1) if cls is type(iter(int, 0)) else iter(_ByIndex())
    _hook.end_iterator(made)
    return made


def looks_into(cls: type, args: tuple[Any, ...], place: int) -> bool:
    """Whether C code looks into this argument's items: runs through, adds, compares or unpacks them, asks for truth."""
    if cls is itertools.chain:
        return True
    if cls is itertools.compress or cls is itertools.starmap:
        return place == 1
    if cls is itertools.accumulate or cls is itertools.groupby:
        return place == 0 and args[1] is None
    return (cls is filter or cls is itertools.filterfalse) and place == 1 and args[0] is None


def _part(heap: Heap, cls: type, part: object, source: Source, looks: bool) -> Any:
    """One argument of the iterator's constructor, safe for C code to walk and to call; to look into its items too."""
    if type(part) in _NUMBERS:  # a position or a count: a fact, never left open
        heap.guard(source, Kind.EQUALS, part)
        return part
    if cls in ASKING and type(part) is types.FunctionType:  # which it lets go of at the end
        heap.guard(source, Kind.ID, part)
        heap.sources.setdefault(id(part), Pinned(part))
    found = heap.adopt(part, source)
    if looks and type(part) is types.GeneratorType:
        raise Break("SB014", f"a {cls.__name__} from outside, which looks into what a generator yields")
    if type(part) is types.GeneratorType or cls is not itertools.repeat and (
            type(part) in _FUNCTIONS or is_a(part, type)):
        return heap.services.handed_to_c(found)
    if heap.is_opaque(found):
        raise Break("SB014", f"a {cls.__name__} over a {type(part).__name__} from outside")
    heap.expose_deep(found)
    if looks:
        _expose_items(heap, cls, found)
    tracker = heap.by_standin.get(id(found))
    if cls is itertools.chain and looks and tracker is not None and tracker.shape is ShadowKind.PEEKABLE:
        _check_iterables(heap, tracker)
    return found


def _expose_items(heap: Heap, cls: type, iterator: object) -> None:
    """C code will look into what an iterator yields: what it, and the iterators behind it, walk is read to the end."""
    pending, seen = [iterator], set()
    while pending:
        each = pending.pop()
        if id(each) in seen or type(each) not in ADOPTED and type(each) not in WALKERS:
            continue
        seen.add(id(each))
        if type(each) in _CALLING:
            raise Break("SB014", f"a {cls.__name__} from outside, which looks into the results of calls")
        for held in gc.get_referents(each):
            if type(held) is types.GeneratorType:
                raise Break("SB014", f"a {cls.__name__} from outside, which looks into what a generator yields")
            heap.expose_deep(held)
            pending += held if type(held) is tuple else (held,)


def _check_iterables(heap: Heap, tracker: VariableTracker) -> None:
    """A chain will run through each of these."""
    for place, item in enumerate(tracker.initial):
        if type(item) is types.GeneratorType:
            tracker.initial[place] = heap.services.handed_to_c(item)
        elif heap.is_opaque(item):
            raise Break("SB014", "a chain over an iterator from outside that only its owner can advance")
        elif type(item) not in _PLAIN:
            raise Break("SB014", f"a chain over a {type(item).__name__} from outside, which the program runs through")


def _state(heap: Heap, cls: type, state: Any, source: Source, looks: bool) -> Any:
    if state is None or type(state) in _NUMBERS:
        heap.guard(source, Kind.EQUALS, state)
        return state
    if cls is itertools.accumulate or cls is itertools.zip_longest:  # its sum so far; what it fills up with
        return _part(heap, cls, state, source, looks)
    heap.guard(source, Kind.TYPE, tuple)
    heap.guard(source, Kind.LEN, len(state))
    # A chain looks into the first, which yields what it runs through; the second is what it runs through now.
    return tuple(_part(heap, cls, part, Index(source, i), looks and i == 0) for i, part in enumerate(state))


@recorded
def adopt_walker(heap: Heap, value: object, source: Source) -> Any:
    """An iterator of a dict or of a view: it knows its dict and how many items are left."""
    cls = type(value)
    heap.guard(source, Kind.TYPE, cls)
    behind = CallOf(Pinned(container_behind), (source,))
    container, start = container_behind(value), WALKERS[cls][1]
    if container is None:
        heap.guard(behind, Kind.ID, None)
        standin = exhausted(start({}))
    else:
        left = operator.length_hint(value)
        if type(container) is not dict or not left and not is_at_end(value):
            raise Break("SB014", f"a {cls.__name__} whose dict changed under it, from outside")
        if left:
            heap.guard_call(operator.length_hint, left, source)
        else:
            heap.guard_call(is_at_end, True, source)
        shadow = heap.adopt(container, behind)
        heap.expose(shadow)
        keys, initial = list(dict.keys(shadow)), heap.by_standin[id(shadow)].initial
        if len(keys) != len(initial) or not all(map(operator.is_, keys, initial)):  # CPython counts them, too
            raise Break("SB014", f"a {cls.__name__} from outside, over a dict that was changed")
        standin = advanced(start(shadow), len(container) - left)
    place = _hook.walker_place(standin)
    heap.register(VariableTracker(standin, value, source, ShadowKind.ITERATOR, place)).type_guarded = True
    return standin


def is_at_end(walker: object) -> bool:
    """Whether the next item is the end. A dict that grew or shrank has no items left for its iterators either."""
    if container_behind(walker) is None or operator.length_hint(walker):
        return False
    try:
        return not reduced(walker)[1][0]
    except RuntimeError:  # dictionary changed size during iteration
        return False


def advanced(iterator: Iterator[Any], steps: int) -> Iterator[Any]:
    for _ in itertools.islice(iterator, steps):
        pass
    return iterator


def exhausted(iterator: Iterator[Any]) -> Iterator[Any]:
    for _ in iterator:
        pass
    return iterator
