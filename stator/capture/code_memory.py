"""Numbers and sizes that change from one compile() call of a code object to the next.

In: the guards of entries of each compile() call; a call that another one captures.  Out: the numbers and sizes that
differ.  20 closures over 20 ints: two graphs.  Entries with parameters of other layouts teach nothing.
"""

from __future__ import annotations

import types
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from stator.capture.call_site import CallSite
from stator.graph.analysis.shared_memory import is_member
from stator.guards.guard import Guard, Kind
from stator.guards.guard_semantics import explain
from stator.guards.guard_set import GuardList
from stator.shapes.policy import Memory
from stator.source import Attr, CallOf, CellOf, Index, Local, Pinned, Source, root_of, with_base

_CODES, _ENTRIES = 256, 4  # places that are remembered, and entries of each
_NESTING = 3  # functions in cells of functions
_NUMBERS = (int, float, tuple)
_records: OrderedDict[object, _Record] = OrderedDict()


@dataclass
class _Record:
    """One place of some code, for one class of first arguments."""

    owners: list[Callable[[], object]]  # weak: a class keeps what its methods close over
    memory: Memory = field(default_factory=Memory)
    entries: deque[list[Guard]] = field(default_factory=lambda: deque(maxlen=_ENTRIES))


def forget() -> None:
    _records.clear()


def recall(site: CallSite, bound: tuple[object, ...]) -> None:
    """Add to a site what other compile() calls of its code have seen to change."""
    record = record_of(site, bound)
    if record is None:
        return
    places = _places(site, bound)
    values = (*bound, site.fn)
    for facts in record.entries:
        if not any(_of_model(guard) and explain(guard, values) is not None for guard in facts):
            record.memory.learn(facts, values)
    _add(site.shapes.memory, record.memory, {outer: inner for inner, outer in places.items()}, len(bound))
    _add(record.memory, site.shapes.memory, places, len(bound))


def remember(site: CallSite, bound: tuple[object, ...], guards: Sequence[Guard]) -> None:
    """Keep the facts of a new entry that later ones may differ in."""
    record = record_of(site, bound)
    if record is None or not isinstance(guards, GuardList):
        return
    places = _places(site, bound)
    facts = []
    for guard in guards.arrived():
        if guard.kind is Kind.TENSOR or guard.kind is Kind.LEN or \
                guard.kind is Kind.EQUALS and type(guard.value) in _NUMBERS:
            source = guard.source if type(root_of(guard.source)) is Local else _moved(guard.source, places, len(bound))
            if source is not None:
                facts.append(guard if source is guard.source else guard.moved(source, guard.value))
    record.entries.append(facts)


def record_of(site: CallSite, bound: tuple[object, ...]) -> _Record | None:
    """The record of a place; None where nothing is learned from others."""
    if site.settings.isolate_recompiles or site.settings.dynamic is False:
        return None
    point = site.point
    owners: list[object] = [type(bound[0]) if bound else object]
    place: tuple[object, ...] = (id(site.fn.__code__),)
    if point is None:
        owners.append(site.fn.__code__)
    else:
        owners += [state.code for state in point.states]
        place = (*[state.key() for state in point.states], point.pushes, point.handled, point.raising)
    key = (place, id(owners[0]))
    found = _records.get(key)
    if found is None or [owner() for owner in found.owners] != owners:
        found = _records[key] = _Record([weakref.ref(owner) for owner in owners])
        while len(_records) > _CODES:
            _records.popitem(last=False)
    _records.move_to_end(key)
    return found


def _places(site: CallSite, bound: tuple[object, ...]) -> dict[Source, Source]:
    """The function, its cells and its globals, by the argument that stands for the function."""
    if site.point is not None:
        return {}
    function = Local("", len(bound))
    found: dict[Source, Source] = {Pinned(site.fn.__globals__): Attr(function, "__globals__")}
    waiting: list[tuple[types.FunctionType, Source, int]] = [(site.fn, function, 0)]
    while waiting:
        fn, place, depth = waiting.pop()
        found[Pinned(fn)] = place
        for number, cell in enumerate(fn.__closure__ or ()):
            found[Pinned(cell)] = inner = Index(Attr(place, "__closure__"), number)
            held = None if cell == types.CellType() else cell.cell_contents
            if type(held) is types.FunctionType and depth < _NESTING and Pinned(held) not in found:
                waiting.append((held, CellOf(inner), depth + 1))
    return found


def _moved(source: Source, places: dict[Source, Source], arguments: int) -> Source | None:
    found = places.get(source)
    if found is not None or type(source) is Local and source.index < arguments:
        return found or source
    if type(source) is CallOf or source.base is None:
        return None
    base = _moved(source.base, places, arguments)
    return None if base is None else with_base(source, base)


def _of_model(guard: Guard) -> bool:
    return guard.kind is Kind.LEN or guard.kind is Kind.TENSOR and is_member(guard.source)


def _add(memory: Memory, more: Memory, places: dict[Source, Source], arguments: int) -> None:
    for mine, theirs in ((memory.numbers, more.numbers), (memory.tuples, more.tuples)):
        mine.update([found for each in theirs if (found := _moved(each, places, arguments)) is not None])
    for table, other in ((memory.sizes, more.sizes), (memory.strides, more.strides)):
        for each, dims in other.items():
            found = _moved(each, places, arguments)
            if found is not None:
                table.setdefault(found, set()).update(dims)
