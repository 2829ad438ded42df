"""Iterators and suspended generators in results and effects.   enumerate(xs)  ->  enumerate(<iterator of xs>, 1)

In: C iterators made inside the trace, and the stand-ins of iterators from outside.  Out: expressions that make
them anew, and statements that move the user's iterators to where the program left them.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator
from typing import Any

from stator import _hook
from stator.breaks import Break
from stator.emit.services import Rebuilder
from stator.heap.adopt.outside_sets import is_under_way
from stator.heap.iterators import outside_iterators
from stator.heap.iterators.peekable_iterators import TEE_DATA
from stator.heap.pure_readers import DICT_VIEWS, container_behind, readable, reduced, set_state
from stator.heap.tracker import VariableTracker
from stator.interp.frame import UNBOUND, add_entries
from stator.interp.generators.generators import finish, mark_running, new_generator, stand

SET_ITERATOR: type = type(iter(set()))
_REBUILT = outside_iterators.ADOPTED | readable(
    itertools.cycle, itertools.product, itertools.permutations, itertools.combinations, TEE_DATA, operator.attrgetter,
    itertools.combinations_with_replacement, type(itertools.tee([])[0]), operator.itemgetter, operator.methodcaller)


def rebuild_iterator(build: Rebuilder, value: object, cls: type) -> str | None:
    """An expression for a C iterator (or view, or getter) made inside the trace; None where it is none."""
    if (view := DICT_VIEWS.get(cls)) is not None:  # by the method of dict or OrderedDict, which a subclass may replace
        make = build.writer.constant(view, view.__name__)
        return build.variable(value, view.__name__, f"{make}({build.value(container_behind(value))})")
    if cls in outside_iterators.WALKERS:
        return _walker(build, value, outside_iterators.WALKERS[cls][0])
    if cls is SET_ITERATOR:
        return _set_iterator(build, value)
    if id(value) in build.heap.tables.walks:  # a list iterator that stands for one over a set
        walked = build.heap.tables.walks[id(value)].standin if is_under_way(value) else None
        return _over_set(build, value, walked, 0 if walked is None else len(walked) - operator.length_hint(value))
    if cls is itertools.pairwise:
        return _pairwise(build, value)
    if cls not in _REBUILT:
        return None
    make, args, state = reduced(value)
    build.kept.append((args, state))
    parts = [f"{build.writer.constant(outside_iterators.Unasked)}({build.value(part)})"
             if outside_iterators.would_be_asked(cls, i, part) else build.value(part) for i, part in enumerate(args)]
    if id(value) in build.memo:  # a cycle through one of its parts built it already
        return build.memo[id(value)]
    name = build.variable(value, cls.__name__, f"{build.value(make)}({', '.join(parts)})")
    if state is not None:
        build.writer.line(f"{build.writer.constant(set_state)}({name}, {build.value(state)})")
        if cls in outside_iterators.POSITIONED and build.heap.tracker_of(args[0]) is not None:
            # No further than its container is long by now: what the program added is still to be added.
            build.afterwards.append(f"{build.writer.constant(settle)}({name}, {build.value(state)})")
    return name


def settle(iterator: object, state: int) -> None:
    """Move an iterator where it ought to be, where its container was too short for that before."""
    if reduced(iterator)[2] != state:
        set_state(iterator, state)


def _walker(build: Rebuilder, value: object, text: str) -> str:
    container = container_behind(value)
    if container is None:
        made = f"{build.writer.constant(outside_iterators.exhausted)}({text.format('{}')})"
        return build.variable(value, "iterator", made)
    tracker = build.heap.tracker_of(container)
    if tracker is not None and type(tracker.initial) is dict \
            and list(map(id, tracker.initial)) != list(map(id, dict.keys(container))):
        # It would have to be made between the write-backs: before them the dict is another one, and so is its length.
        raise Break("SB007", "an iterator over a dict from outside that gained or lost keys")
    return _advanced(build, value, text.format(build.value(container)), len(container) - operator.length_hint(value))


def _advanced(build: Rebuilder, value: object, made: str, steps: int) -> str:
    if steps:
        made = f"{build.writer.constant(outside_iterators.advanced)}({made}, {steps})"
    return build.variable(value, "iterator", made)


def _set_iterator(build: Rebuilder, value: object) -> str:
    container = container_behind(value)
    try:
        steps = 0 if container is None else len(container) - len(reduced(value)[1][0])
    except RuntimeError:
        raise Break("SB007", "an iterator over a set that has changed since") from None
    return _over_set(build, value, container, steps)


def _over_set(build: Rebuilder, value: object, container: object, steps: int) -> str:
    if container is None:
        return build.variable(value, "iterator", f"{build.writer.constant(outside_iterators.exhausted)}(iter(set()))")
    tracker = build.heap.tables.sets.get(id(container))
    if tracker is not None and tracker.table.is_changed(container):
        raise Break("SB007", "an iterator over a set from outside that gained or lost members")
    return _advanced(build, value, f"{build.writer.constant(iter)}({build.value(container)})", steps)


def _pairwise(build: Rebuilder, value: object) -> str:
    parts = _hook.pairwise_parts(value)
    build.kept.append(parts)
    texts = [build.value(part) for part in parts]
    name = build.variable(value, "pairwise", f"{build.writer.constant(itertools.pairwise, 'pairwise')}(())")
    build.writer.line(f"{build.writer.constant(_hook.set_pairwise, 'set_pairwise')}({', '.join([name, *texts])})")
    return name


def write_iterator(build: Rebuilder, tracker: VariableTracker, out: list[str]) -> None:
    """Move the user's iterator to where the program left its stand-in."""
    standin, cls = tracker.standin, type(tracker.standin)
    if cls in outside_iterators.WALKERS:
        return _move_walker(build, tracker, out)
    now = reduced(standin)
    build.kept.append(now)
    if _same(tracker.initial, now):
        return
    name = build.outside(tracker.source)
    if cls in outside_iterators.ASKING and outside_iterators.at_end(now[1]):
        out.append(f"{build.writer.constant(_hook.end_iterator, 'end_iterator')}({name})")
    elif cls in outside_iterators.POSITIONED or cls in outside_iterators.ASKING:
        out.append(f"{build.writer.constant(outside_iterators.exhausted)}({name})" if now[2] is None
                   else f"{build.writer.constant(set_state)}({name}, {build.value(now[2])})")
    elif cls in outside_iterators.COUNTING:
        place = 1 if cls is itertools.repeat else 0
        out.append(f"{build.writer.constant(count_until)}({name}, {place}, {build.value(now[1][place])})")
    elif cls is enumerate:
        out.append(f"{build.writer.constant(_hook.move_enumerate, 'move_enumerate')}({name}, {now[1][1]})")
    elif cls is itertools.islice:
        following, taken = (-1, 0) if len(now[1]) == 2 else (now[1][1], now[2])
        out.append(f"{build.writer.constant(_hook.move_slice, 'move_slice')}({name}, {following}, {taken})")
    elif cls in outside_iterators.STATEFUL:
        state = "(iter(()),)" if cls is itertools.chain and now[2] is None else build.value(now[2])
        out.append(f"{build.writer.constant(set_state)}({name}, {state})")
    elif cls not in outside_iterators.STATELESS:
        raise Break("SB014", f"a {cls.__name__} from outside that was moved on")


def _move_walker(build: Rebuilder, tracker: VariableTracker, out: list[str]) -> None:
    """Move an iterator of a dict, while the dict is as it was: of one that has changed it could not be moved."""
    constant, place = build.writer.constant, _hook.walker_place(tracker.standin)
    if place == tracker.initial:
        return
    name = build.outside(tracker.source)
    if not place:
        return out.append(f"{constant(_hook.end_iterator, 'end_iterator')}({name})")
    steps = tracker.initial[1] - place[1]
    if place[1] < 0 or abs(place[0] - tracker.initial[0]) != steps:
        raise Break("SB014", "an iterator over a dict that gained or lost keys meanwhile")
    if steps:
        out.append(f"{constant(outside_iterators.advanced)}({name}, {steps})")
    if place[2]:
        out.append(f"{constant(_hook.spoil_walker, 'spoil_walker')}({name})")


def _same(before: object, now: object) -> bool:
    """Whether the parts of an iterator are those of the start: numbers by value, objects by identity."""
    if type(before) is tuple and type(now) is tuple:
        return len(before) == len(now) and all(map(_same, before, now))
    if type(before) is type(now) and type(before) in (int, float, complex):
        return before == now
    return before is now


def count_until(iterator: Iterator[Any], place: int, target: object) -> None:
    """Advance a counting iterator until the argument that counts has reached `target`."""
    while reduced(iterator)[1][place] != target:
        if next(iterator, count_until) is count_until:
            return


def rebuild_generator(build: Rebuilder, value: Any) -> str:
    """An expression for a generator or coroutine that the trace made, or that stands in for one from outside."""
    body = build.vm.generators[id(value)]
    if body.adopted is not None:
        return build.outside(body.adopted)
    writer = build.writer
    code = writer.constant(body.code, "code")
    scope = writer.constant(body.namespace, "globals")
    make = writer.constant(new_generator, "new_generator")
    name = build.variable(value, body.code.co_name,
                          f"{make}({code}, {scope}, {value.__name__!r}, {value.__qualname__!r})")
    write_standing(build, body, name, writer.lines)
    return name


def write_standing(build: Rebuilder, body: Any, name: str, out: list[str]) -> None:
    """Statements that make the native generator `name` stand where its interpreted body does."""
    writer = build.writer
    if body.done or body.running:
        change, hint = (finish, "finish_generator") if body.done else (mark_running, "mark_running")
        return out.append(f"{writer.constant(change, hint)}({name})")
    frame = body.frame
    slots = tuple(slot for slot in range(frame.unit.nlocalsplus) if frame.locals[slot] is not UNBOUND)
    values = [frame.locals[slot] for slot in slots]
    kinds = add_entries(frame.stack, values)
    parts = [build.value(each) for each in values]
    out.append(f"{writer.constant(stand, 'stand')}({name}, {frame.ip}, {slots!r}, {kinds!r}, "
               f"({', '.join(parts)}{',' if parts else ''}), {body.started})")
