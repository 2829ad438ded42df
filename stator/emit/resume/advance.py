"""Advance from one captured segment to the next.   live values at a graph break  ->  Resume(next segment, its values)

The unsupported instruction runs as plain Python, with the frames below it compiled.  Where it cannot run alone
(`sys._getframe()`), the innermost frame runs to its end natively.  A resume point inherits learned sizes.
"""

from __future__ import annotations

import copy
import functools
import itertools
import types
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, ClassVar

import torch
from numpy import ndarray
from torch._subclasses.fake_tensor import FakeTensor

from stator import _core
from stator.breaks import REGISTRY, Break, Native
from stator.code.decode import decode
from stator.emit.resume.native_opcodes import plan_step
from stator.emit.resume.native_step import SlotKind, handling, own_frames_dropped
from stator.emit.resume.resume_points import NATIVE_CODES, Left, ResumePoint
from stator.heap.heap import Heap
from stator.heap.tracker import Box
from stator.host import shown_names
from stator.interp.frame import NULL
from stator.interp.suspend import FrameState
from stator.settings import marks
from stator.shapes.policy import Memory
from stator.shapes.symbolic_values import GRAPH_SCALARS, UNREAD, DeferredText
from stator.source import CallOf, Index, Key, Local, Pinned, Source, with_base


class Points:
    """The resume points of one compiled call, and what runs between them; shared by all its segments."""

    probe_of_all: ClassVar[Any] = None

    def __init__(self, name: str, make_entry: Callable[[ResumePoint], Any], invoke: Callable[..., Any]) -> None:
        self.name = name
        self.make_entry = make_entry  # the entry object of a point
        self.invoke = invoke  # calls a function of the program natively, its Python callees compiled
        self.probe: Any = Points.probe_of_all  # told what every break costs, while somebody measures
        self.known: dict[Any, ResumePoint] = {}
        # error_on_graph_break around the call whose segments run, once a segment has ended under another.
        self._policy_outside: tuple[bool | None] | None = None

    def point(self, states: list[FrameState], pushes: tuple[str, ...], handled: bool, raising: bool) -> ResumePoint:
        key = (tuple(state.key() for state in states), pushes, handled, raising)
        found = self.known.get(key)
        if found is None:
            place, text = shown_names.names.resumed([state.place(state is not states[-1]) for state in states])
            found = ResumePoint(states, pushes, handled, raising, f"{self.name} resumed at {text}", place)
            found.compiled = self.make_entry(found)
            self.known[key] = found
        return found

    def enter_policy(self, value: bool | None) -> None:
        """The first segment ends inside a region of error_on_graph_break."""
        self._policy_outside = (marks.set_error_policy(value),)

    def leave_policy(self) -> None:
        """The call ends here, by an error of ours, and will not leave its regions itself."""
        if self._policy_outside is not None:
            marks.set_error_policy(self._policy_outside[0])

    def entries(self) -> list[Any]:
        return [point.compiled for point in self.known.values()]


class Advance:
    """Run the instruction of a break natively, then go on: called by the trampoline with the live values."""

    def __init__(self, points: Points, states: list[FrameState], handled: bool, stop: Break, event: object) -> None:
        self.points, self.states, self.handled, self.event = points, states, handled, event
        self.target: Callable[..., Any] = self  # called by the trampoline
        last = states[-1]
        instr = decode(last.code).instructions[last.index]
        needs_frame = REGISTRY[stop.code].native is Native.FRAME or stop.stop.whole_frame
        alone = stop.stop.outermost or not needs_frame
        self.step = plan_step(instr, last.kwnames, last.namespace) if alone else None
        self.callers = callers_of(states) if stop.stop.asks_caller else []
        kept = len(last.kinds) - (self.step.pops if self.step else 0)
        self.operand_kinds = last.kinds[kept:]
        if self.step is None or "exc_info" in self.operand_kinds:  # the innermost frame runs natively to its end
            self.step, self.whole = None, ResumePoint(states, (), handled, False, points.name)
            return
        self.operands = sum(kind == "value" for kind in self.operand_kinds)
        self.tail = last.tail_count() + handled  # values after the innermost stack
        self.outside = _handled_places(states)
        self.exits = [points.point([*states[:-1], last.moved(way.index, kept)],
                                   tuple(kind.value for kind in way.pushes), handled, False) for way in self.step.exits]
        self.failure = points.point([*states[:-1], last.moved(last.index + 1, kept)], (), handled, True)
        if points.probe is None and not self.callers:
            self.target = self.native_step(points.invoke)

    def native_step(self, invoke: Callable[..., Any]) -> Callable[..., Any]:
        """`__call__` in C, for the usual case: one call or one branch, and nothing is being handled."""
        assert self.step is not None
        form = self.step.form
        if form is None or self.handled or self.outside:
            return self
        count = sum(state.value_count() for state in self.states)
        first, end = count - self.tail - self.operands, count - self.tail
        exits = tuple(point.compiled for point in self.exits)
        return _core.NativeStep(
            tuple(range(first, end)), (*range(first), *range(end, count)), exits, self.failure.compiled, invoke,
            form.callee, form.names or None, form.jumps_on, bool(self.step.exits[0].pushes))

    def repeated(self, outcome: tuple[int, list[object]]) -> Callable[..., Any]:
        """The passage through this break with a known outcome of its instruction, which does not run again."""
        assert self.step is not None
        if self.step.form is not None and self.step.form.jumps_on is None:
            result = outcome[1][0] if outcome[1] else None
            return self.native_step(lambda *operands, **named: result)
        again = copy.copy(self)
        again.step = replace(self.step, run=lambda operands, invoke: outcome)
        return again

    @property
    def takes_item(self) -> bool:
        """Whether the instruction takes an item from an iterator, rather than computing something from a value."""
        last = self.states[-1]
        return decode(last.code).instructions[last.index].opname == "FOR_ITER"

    def origins(self) -> Iterator[tuple[ResumePoint, list[int | None]]]:
        """Each point that may follow, and for each of its arguments which live value it is; None: a new one."""
        if self.step is None:
            for left in self.whole.ways_out():
                point, values = self._next_point(left)
                yield point, [value if type(value) is int else None for value in values]
            return
        count = sum(state.value_count() for state in self.states) + self.handled
        end = count - self.tail
        kept: list[int | None] = [*range(end - self.operands)]
        made, last = [*range(end, count - self.handled)], [*range(count - self.handled, count)]
        for way, point in zip(self.step.exits, self.exits, strict=True):
            results: list[int | None] = [None for kind in way.pushes if kind is SlotKind.VALUE]
            if self.takes_item and results:
                results[0] = end - 1  # the iterator itself
            yield point, [*kept, *made, *results, *last]
        yield self.failure, [*kept, *made, *last, None]

    @property
    def takes_values(self) -> bool:
        """Whether it is called with a list of the values, which it empties: their frame runs, and lets go of them."""
        return self.step is None

    def __call__(self, *values: Any) -> Any:
        if self.step is None:
            return self._run_frame(values[0])
        end = len(values) - self.tail
        given = iter(values[end - self.operands:end])
        operands = [NULL if kind == "null" else next(given) for kind in self.operand_kinds]
        over = len(values) - self.handled
        head, made, last = values[:end - self.operands], values[end:over], values[over:]
        run = self.step.run
        if self.points.probe is not None:
            run = self.points.probe.watch(self, values, run)
        invoke = self.invoke if self.callers else self.points.invoke
        try:
            way, results = handling(last[0] if last else self._handled_outside(values), run, operands, invoke)
        except BaseException as error:
            traceback = own_frames_dropped(error.__traceback__)
            for caller in self.callers:
                if traceback is not None and traceback.tb_frame.f_code is caller.__code__:
                    traceback = traceback.tb_next
            error.__traceback__ = traceback
            try:
                return _core.Resume(self.failure.compiled, (*head, *made, *last, error))
            finally:
                del values, operands, head, made, last, given, traceback  # see ResumePoint.run_native
        return _core.Resume(self.exits[way].compiled, (*head, *made, *results, *last))

    def invoke(self, function: Callable[..., Any], /, *args: object, **kwargs: object) -> Any:
        """Call a function that looks at its callers: from frames that look like the program's."""
        for caller in reversed(self.callers):
            function, args, kwargs = caller, (function, args, kwargs), {}
        return self.points.invoke(function, *args)

    def _handled_outside(self, values: tuple[Any, ...]) -> Any:
        """The exception that the callers of a running generator are handling, where its own frame handles none."""
        return next((values[place] for place in self.outside if values[place] is not None), None)

    def _run_frame(self, taken: list[Any]) -> Any:
        """`taken`, which is emptied, has the values."""
        left = self.whole.run_innermost(taken, self.points.invoke)
        if not left.states:
            value, error = left.value, left.error
            del left  # see ResumePoint.run_native
            try:
                if error is not None:
                    raise error
                return value
            finally:
                del value, error
        point, values = self._next_point(left)
        return _core.Resume(point.compiled, values)

    def _next_point(self, left: Left) -> tuple[ResumePoint, tuple[Any, ...]]:
        """Where the callers of a frame that ran natively go on, and with what."""
        handled = () if left.handled is None else (left.handled,)
        raised = () if left.error is None else (left.error,)
        return self.points.point(left.states, (), bool(handled), bool(raised)), (*left.values, *handled, *raised)


def _handled_places(states: list[FrameState]) -> list[int]:
    """Where among the values those are that the callers of generators are handling, innermost first."""
    ends = itertools.accumulate(state.value_count() for state in states)
    return [end - state.tail_count() + 1 for state, end in zip(states, ends, strict=True) if state.generator][::-1]


def callers_of(states: list[FrameState]) -> list[types.FunctionType]:
    """One for each suspended frame, the outermost first; all but the innermost stand behind the call they wait for."""
    lines = [decode(state.code).instructions[max(state.index - (state is not states[-1]), 0)].line for state in states]
    return [caller_of(state, line or 1) for state, line in zip(states, lines, strict=True)]


def caller_of(state: FrameState, line: int) -> types.FunctionType:
    """A function that makes a call as if from this line of a suspended frame."""
    text = "\n" * (line - 1) + "def caller(function, args, kwargs): return function(*args, **kwargs)"
    namespace: dict[str, Any] = {}
    exec(compile(text, state.code.co_filename, "exec"), namespace)  # noqa: S102  our own text
    code = namespace["caller"].__code__.replace(co_name=state.code.co_name, co_qualname=state.code.co_qualname)
    NATIVE_CODES.add(code)
    return types.FunctionType(code, state.namespace)


_NESTING = 3  # levels of fresh containers that are looked into
_DATA = frozenset({"SB002", "SB003", "SB004", "SB024"})  # breaks whose results differ from call to call


def pass_on(memory: Memory, heap: Heap, values: list[Any], advance: Advance, stop: Break) -> None:
    """Pass the facts of a site on to every point that `advance` may go on at."""
    for point, origins in advance.origins():
        known: Memory = point.compiled._stator_site.shapes.memory
        places: dict[Source, Source] = {}
        for number, origin in enumerate(origins):
            here = Local(point.names[number], number)
            if origin is not None:
                _note_value(known, heap, values[origin], here, places, _NESTING)
            elif stop.code in _DATA:
                known.numbers.add(here)
                if stop.stop.varying and not advance.takes_item:
                    known.unread.add(here)
        known.merge(memory, functools.partial(_moved, places=places))


def _note_value(known: Memory, heap: Heap, value: Any, here: Source, places: dict[Source, Source], depth: int) -> None:
    cls = type(value)
    if cls is torch.SymInt or cls is torch.SymFloat:
        known.numbers.add(here)
    elif cls in GRAPH_SCALARS or cls is ndarray and heap.arrays.is_backed(value):
        known.contents.setdefault(here, set()).add(0)  # an input of the graph from the start
    elif cls in UNREAD and cls is not DeferredText:
        known.unread.add(here)
    elif cls is FakeTensor:
        dims = {dim for dim, size in enumerate(value.shape) if type(size) is torch.SymInt}
        if dims:
            known.sizes.setdefault(here, set()).update(dims)
    tracker: Any = heap.by_standin.get(id(value))
    if cls is Box or tracker is not None:
        places.setdefault(value.source() if cls is Box else tracker.source, here)
    elif depth and cls in (list, tuple, dict):
        parts = [(Key(here, key), item) for key, item in value.items() if type(key) is str] if cls is dict \
            else [(Index(here, i), item) for i, item in enumerate(value)]
        for place, item in parts:
            _note_value(known, heap, item, place, places, depth - 1)


def _moved(source: Source, places: dict[Source, Source]) -> Source | None:
    """The source in the terms of the resume point; None where it is not reachable from there."""
    found = places.get(source)
    if found is not None or type(source) is Pinned:
        return found or source
    if type(source) is CallOf:
        moved = tuple(_moved(argument, places) for argument in source.args)
        return None if None in moved else CallOf(source.fn, moved)  # type: ignore[arg-type]
    if source.base is None:
        return None
    base = _moved(source.base, places)
    return None if base is None else with_base(source, base)
