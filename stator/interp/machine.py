"""The loop: run a frame until it returns, unwinding the program's exceptions as CPython does.

In: a root frame with its arguments boxed.  Out: the value it returns, or the exception it raises
(`Raised`), or a `Break` carrying the user's place.  Calls between interpreted functions do not recurse.
"""

from __future__ import annotations

import inspect
import itertools
import sys
import types
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import fx

from stator import _hook, events
from stator.breaks import Break, Strategy
from stator.code.decode import decode
from stator.code.instruction import Instruction
from stator.code.opcodes import ALL_OPNAMES
from stator.errors import UserFrame
from stator.graph.analysis.may_fail import ANY, CLEANUP, HANDLED
from stator.graph.fx.graph_modules import AT
from stator.graph.record.recorder import Recorder
from stator.graph.state.torch_state import TorchState
from stator.heap.heap import Heap
from stator.heap.iterators.peekable_iterators import posed_class
from stator.heap.pure_readers import traceback_of
from stator.heap.tracker import Box, ShadowKind
from stator.host import shown_names
from stator.host.own_code import OWN_FOLDER
from stator.host.value_kinds import is_a
from stator.interp import frame as frames
from stator.interp.frame import Bug, Continuation, ExcState, Finished, Frame, Raised, outward
from stator.interp.graph_errors import any_cleans_up, caught_in, note_caught
from stator.interp.mechanisms import LOOK_MASK, Mechanisms, Progress
from stator.interp.objects.object_texts import guard_names_in
from stator.interp.outside_exceptions import handled_exception
from stator.interp.services import VM
from stator.source import CallOf, Pinned

Handler = Callable[[VM, Frame, Instruction], None]
NOWHERE: tuple[Any, int, Any] = (None, -1, None)
DEPTH_LIMIT = 900  # where CPython's own limit of 1,000 may be near: the program then runs as it is
HANDLERS: dict[str, Handler] = {}  # by opname; filled by the modules of opcodes/
DECLINED: dict[str, str] = {}  # opcodes that break, with their code
_RESUMABLE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def op(handler: Handler) -> Handler:
    """Register a handler under the opcode it is named after, if the running version has it."""
    ops(**{handler.__name__: handler})
    return handler


def ops(**handlers: Handler) -> None:
    """Register handlers by opcode, those that the running version has."""
    HANDLERS.update({name: handler for name, handler in handlers.items() if name in ALL_OPNAMES})


def declined(code: str, *names: str) -> None:
    """Register opcodes that break, with their code."""
    for name in ALL_OPNAMES.intersection(names):
        def handler(vm: VM, frame: Frame, instr: Instruction, name: str = name) -> None:
            raise Break(code, name)
        HANDLERS[name], DECLINED[name] = handler, code


def program_of(unit: Any) -> list[tuple[Handler, Any]]:
    """Each instruction beside its handler, worked out once per code object."""
    if events.lines_wanted():
        return [(_with_lines(handler), i) for handler, i in ((HANDLERS[i.opname], i) for i in unit.instructions)]
    program = unit.analyses.get("program")
    if program is None:
        program = unit.analyses["program"] = _hook.with_handlers(unit.instructions, HANDLERS)
    return program


def _with_lines(handler: Handler) -> Handler:
    """The handler, after an event at the first instruction of each line."""
    def handle(vm: VM, frame: Frame, instr: Instruction) -> None:
        before = frame.unit.instructions[instr.index - 1].line if instr.index else None
        if instr.line is not None and instr.line != before:
            rest = itertools.takewhile(lambda each: each.line == instr.line, frame.unit.instructions[instr.index:])
            events.emit(events.LineTraced(frame.code.co_filename, instr.line, frame.code.co_qualname,
                                          tuple((each.opname, each.argval) for each in rest)))
        handler(vm, frame, instr)
    return handle


class Thunk(Frame):
    """A base frame that does one thing of ours and returns the value it gets."""

    __slots__ = ()

    def __init__(self, begin: Callable[[], None]) -> None:
        program = [(_begin(begin), _THUNK.instructions[0]), (_end, _THUNK.instructions[1])]
        super().__init__(_THUNK, program, None, [], None)


def _begin(begin: Callable[[], None]) -> Callable[..., Any]:
    def handler(vm: VM, frame: Frame, instr: Instruction) -> None:
        begin()
    return handler


def _end(vm: VM, frame: Frame, instr: Instruction) -> None:
    raise Finished(frame.stack.pop())


def _stub() -> None:
    pass


_THUNK = decode(_stub.__code__)


class Lines:
    """Places of the program that nodes and guards are marked with."""

    __slots__ = ("places", "located")

    def __init__(self) -> None:
        self.places: dict[str, frames.Place] = {}  # by their line in the stack traces of nodes
        self.located: tuple[Any, int, Any] = NOWHERE  # a code object, an instruction of it, its place


class Machine(Mechanisms):
    """The loop of one trace: the frame stack, the exception being handled, the heap and the recorder."""

    def __init__(self, heap: Heap, recorder: Recorder) -> None:
        super().__init__()
        self.heap = heap
        self.recorder = recorder
        self.frame: Frame | None = None
        self.exc_state = ExcState(sys.exception())
        self.depth = 0
        self.escaped: BaseException | None = None  # the program's, on its way through C code or a nested run
        self.pending: BaseException | None = None  # a Break that C code might swallow
        self.fresh: dict[int, Any] = {}  # functions, classes and modules made by the trace
        self.generators: Any = {}  # interpreted bodies, by id (see generators)
        self.replay: Any = None  # of repeated structure, where the settings allow it
        self.frame_objects = frames.FrameObjects()
        self.lines = Lines()
        self.progress = Progress()
        self.steps = 0  # instructions begun by the outermost loop
        self.stop_step = -1  # where to raise `progress.stop`: a trace is repeated up to the place of a break
        self.mechanisms[:0] = heap, recorder.torch_state
        recorder.services.place = self.place_node
        recorder.services.expose = heap.expose_deep
        heap.services.locate = recorder.services.locate = self.location

    @property
    def running(self) -> Frame:
        assert self.frame is not None
        return self.frame

    @property
    def torch_state(self) -> TorchState:
        return self.recorder.torch_state

    def run(self, frame: Frame, start: Frame | None = None, thrown: BaseException | None = None) -> Any:
        """Run `frame` to its end; `start`: the innermost frame of a resumed stack, where `thrown` is raised first."""
        outer, frame.outer, frame.is_base = self.frame, self.frame, True
        frame.parent = None
        frame.level = 0 if outer is None else outer.level + 1
        state = self.exc_state
        self.frame = frame if start is None else start
        self.depth += 1
        if self.depth > 60:
            raise Break("SB011", "60 calls nested through C code")
        failed = False
        try:
            while True:
                try:
                    if thrown is not None:
                        exc, thrown = thrown, None
                        raise Raised(exc)
                    while self.depth == 1:
                        frame = self.frame  # type: ignore[assignment]
                        if self.steps == self.stop_step:
                            raise self.progress.stop
                        frame.step = self.steps
                        self.steps += 1
                        handler, instr = frame.program[frame.ip]
                        frame.ip += 1
                        handler(self, frame, instr)
                    while True:
                        frame = self.frame  # type: ignore[assignment]
                        handler, instr = frame.program[frame.ip]
                        frame.ip += 1
                        handler(self, frame, instr)
                except Raised as raised:
                    exc, again, unnamed = raised.exc, raised.again, raised.of_a_tensor
                    chained = raised.chained
                except Finished as finished:
                    self.exc_state = state
                    # Its traceback holds the frames that hold it, and with them the user's objects: a cycle.
                    return finished.value if not finished.yielded else finished.with_traceback(None)
                except Break as stop:
                    self.place(stop)
                    failed = True
                    raise
                except RecursionError:
                    deep = Break("SB011", "the recursion limit, reached inside C code or a class's own lookups")
                    self.place(deep)
                    failed = True
                    raise deep from None
                except Exception as error:
                    self.pending = Bug(error)
                    raise self.pending from error
                if self.pending is not None:
                    raise self.pending
                if (unnamed or exc.args) and self.caught() & HANDLED:
                    if (unsaid := self.unsaid(exc, unnamed)) is not None:
                        self.place(unsaid)
                        failed = True
                        raise unsaid
                    guard_names_in(cast(VM, self), exc)
                self.unwind(exc, again, chained)
                del exc  # the program may let go of it, and see its objects die
        finally:
            if not failed:
                self.frame = outer
            self.depth -= 1

    def unsaid(self, exc: BaseException, unnamed: bool) -> Break | None:
        """The break for an error that names the class of a stand-in, where the original has another one."""
        if unnamed and self.has_classes_of_tensors():
            return Break("SB017", "the words of an error about a tensor, which may be a Parameter")
        if exc.args and type(exc.args[0]) is str and "list_iterator" in exc.args[0] and (self.heap.tables.walks or any(
                posed_class(self.heap, tracker.standin) is not None for tracker in self.heap.trackers)):
            return Break("SB014", "the words of an error about an iterator from outside")
        return None

    def has_classes_of_tensors(self) -> bool:
        """Whether the trace has met a tensor of another class than torch.Tensor."""
        return bool(self.recorder.classes) or any(
            tracker.shape is ShadowKind.TENSOR and type(tracker.original) is not torch.Tensor
            for tracker in self.heap.trackers)

    def unwind(self, exc: BaseException, again: bool, chained: bool) -> None:
        """Go to the handler of `exc`, leaving frames that have none."""
        if id(exc) not in self.heap.by_standin and not chained and exc.__context__ is None:
            self.set_context(exc)
        while True:
            frame = self.frame
            assert frame is not None
            instr = frame.program[frame.ip - 1][1]
            if not again:
                self._add_traceback(exc, frame)
            again = False
            entry = instr.handler
            if entry is not None:
                offset = frames.last_offset(frame) if entry.lasti else 0
                del frame.stack[entry.depth:]
                if entry.lasti:
                    frame.stack.append(offset // 2)
                handled_exception(cast(VM, self))  # there may be none: then the exception has no context
                frame.stack.append(exc)
                frame.ip = entry.target
                return
            self.frame_objects.left(frame, frames.locals_of(frame, self.heap.by_standin))
            if frame.generator is not None:
                exc = frame.generator.failed(self, exc)
            if frame.is_base:
                self.escaped = exc
                raise exc
            self.frame = frame.parent
            try:
                if frame.cont is not None and frame.cont.raised(self, frame.parent, exc):
                    return
            except Raised as other:
                exc = other.exc

    def set_context(self, exc: BaseException) -> BaseException:
        """Chain `exc` to the exception being handled, as raising it would, without making a cycle."""
        current = self.exc_state.topmost() or self.exc_state.outside() and handled_exception(cast(VM, self))
        if current is None or current is exc or exc.__context__ is current:
            return exc
        if id(exc) in self.heap.by_standin:
            raise Break("SB006", "the context of an exception from outside")
        seen: dict[int, BaseException] = {}  # a cycle that is there already is gone through once
        link: BaseException = current
        while link.__context__ is not None and id(link) not in seen:
            seen[id(link)] = link
            if link.__context__ is exc:
                if id(link) in self.heap.by_standin:
                    raise Break("SB006", "the context of an exception from outside")
                link.__context__ = None
                break
            link = link.__context__
        exc.__context__ = current
        return exc

    def _add_traceback(self, exc: BaseException, frame: Frame) -> None:
        if id(exc) in self.heap.by_standin:  # the user's exception: nothing is written on it while tracing
            if frame.func is not None and not is_own(frame):
                held = frames.locals_of(frame, self.heap.by_standin)
                self.effects.noted.append(frames.Unwound(exc, frames.place_of(frame), held))
            return
        tb = exc.__traceback__
        while tb is not None and tb.tb_frame.f_code.co_filename.startswith(OWN_FOLDER):
            tb = tb.tb_next  # our own frames, below the interpreted ones
        if frame.func is not None and not is_own(frame):
            tb = frames.with_place(tb, frames.place_of(frame), self.frame_objects.of(frame))
        exc.__traceback__ = tb

    def traceback_of(self, exc: BaseException) -> types.TracebackType | None:
        """The traceback of an exception; of one from outside, what it came with and what the trace has unwound."""
        if not self.is_from_outside(exc):
            return exc.__traceback__
        tracker = self.heap.by_standin[id(exc)]
        before, source = traceback_of(tracker.original), CallOf(Pinned(traceback_of), (tracker.source,))
        places = [each.place for each in self.effects.noted if type(each) is frames.Unwound and each.exc is exc]
        if before is not None and places:
            raise Break("SB020", "the traceback of an exception that was raised before the call")
        traceback = self.heap.adopt(before, source)
        for place in places:
            traceback = frames.with_place(traceback, place)
        return traceback

    def push(self, frame: Frame, cont: Continuation | None = None) -> None:
        """Call into `frame`; its result goes to the current frame's stack, or to `cont`."""
        frame.parent = caller = self.frame
        frame.cont = cont
        frame.level = level = caller.level + 1  # type: ignore[union-attr]
        if level > DEPTH_LIMIT:
            raise Break("SB011", f"{DEPTH_LIMIT} nested calls")
        self.frame = frame
        progress = self.progress
        progress.pushes += 1
        if not progress.pushes & LOOK_MASK:
            progress.look(self)

    def give(self, value: object, cont: Any = None) -> None:
        """Give a value computed at once to its continuation."""
        if cont is None:
            self.frame.stack.append(value)  # type: ignore[union-attr]
        else:
            cont.returned(self, self.frame, value)

    def leave(self, frame: Frame, value: object) -> None:
        """`frame` returns `value`; its locals die now, the first one first: a generator may have a `finally` to run."""
        frame.locals.reverse()
        frame.locals.clear()  # the last item first
        if self.frame_objects:
            self.frame_objects.left(frame)
        if self.pending is not None:  # such a `finally` broke, and nobody else hears of it
            raise self.pending
        if frame.segment is not None:
            self.replay.end(frame.segment, value)
        if frame.is_base:
            raise Finished(value)
        parent = self.frame = frame.parent
        if frame.cont is None:
            parent.stack.append(value)  # type: ignore[union-attr]
        else:
            frame.cont.returned(self, parent, value)

    def is_from_outside(self, value: object) -> bool:
        return id(value) in self.heap.by_standin

    def location(self) -> tuple[str, int, str] | None:
        frame = self.frame
        if frame is not None and frame.code is self.lines.located[0] and frame.ip == self.lines.located[1]:
            return self.lines.located[2]  # an instruction adds several guards
        here = frame
        while frame is not None and is_own(frame):
            frame = frame.caller()
        if frame is None:
            return None
        found = (frame.code.co_filename, frame.line, frame.code.co_name)
        if frame is here:
            self.lines.located = (frame.code, frame.ip, found)
        return found

    def append_output(self, effect: object) -> None:
        if (here := self.location()) is not None:
            self.effects.lines.add(here[:2])
        self.effects.noted.append(effect)

    def stack(self) -> list[UserFrame]:
        found = []
        for frame in outward(self.frame):
            if not is_own(frame):
                first = next(iter(frame.locals), None)
                owner = first.raw if type(first) is Box else self.heap.original_of(first)
                found.append((frame.code.co_filename, frame.line, frame.code.co_qualname, owner))
        modules = [owner for *_, owner in found if is_a(owner, torch.nn.Module)]
        names = shown_names.names.modules(modules[-1], modules) if modules else {}
        return [UserFrame(file, line, name, names.get(id(owner), "")) for file, line, name, owner in reversed(found)]

    def stack_trace(self) -> str:
        frame = self.frame
        return "" if frame is None else _callers(frame, self)[3] + _frame_line(frame, self.lines.places)

    def written(self, node: fx.Node) -> str:
        """The user's expression that made a node."""
        lines = (node.meta.get("stack_trace") or "").splitlines(keepends=True)
        place = self.lines.places.get(lines[-1]) if lines else None
        return "" if place is None else shown_names.names.expression(place.code, node.meta.get(AT, place.lasti))

    def place_node(self, node: fx.Node) -> None:
        """Put on a node of the graph where the program stands, and what might catch its error."""
        frame = self.frame
        if frame is None:
            node.meta["stack_trace"] = ""
            return
        above = _callers(frame, self)
        line = _frame_line(frame, self.lines.places)
        node.meta["stack_trace"] = above[3] + line
        if line:
            node.meta[AT] = frame.instruction.offset
        if self.recorder.region.named is not None:
            self.recorder.region.named.mark(self, node)
        if caught := above[4] | caught_in(frame, self.generators, self.heap.by_standin):
            note_caught(node, caught, Strategy.HANDLED_ERRORS in self.turned_off)
        # An error is chained to the exception being handled, which a graph does not know.
        if self.generators and any_cleans_up(self.generators) or self.exc_state.topmost() is not None:
            note_caught(node, CLEANUP, False)

    def caught(self) -> int:
        """Handlers around the current instruction (see graph_errors)."""
        frame = self.frame
        if frame is None:
            return 0
        return _callers(frame, self)[4] | caught_in(frame, self.generators, self.heap.by_standin)

    def place(self, stop: Break) -> None:
        """Place a break where in the user's program it is (once, at the innermost frame)."""
        if not getattr(stop, "stack", None):
            stack = self.stack()
            stop.stack = tuple(stack)
            if stack:
                stop.filename, stop.line = stack[-1].filename, stack[-1].line
        self.pending = stop


def _callers(frame: Frame, vm: Machine) -> tuple[Any, ...]:
    """The text of the frames above and what they would catch, kept while they stand where they stood."""
    caller = frame.caller()
    if caller is None:
        return frame.above
    kept = frame.above
    if kept[0] is caller and not frame.code.co_flags & _RESUMABLE:
        return kept  # a call stays where it was made
    above = _callers(caller, vm)
    if kept[0] is not caller or kept[1] != caller.ip or kept[2] is not above:
        text = above[3] + _frame_line(caller, vm.lines.places)
        # C code between the two may catch as well: an IndexError of `__getitem__` ends an iteration.
        caught = ANY if frame.is_base else above[4] | caught_in(caller, vm.generators, vm.heap.by_standin)
        kept = frame.above = (caller, caller.ip, above, text, caught)
    return kept


def _frame_line(frame: Frame, places: dict[str, frames.Place]) -> str:
    if is_own(frame):
        return ""
    line = f'  File "{frame.code.co_filename}", line {frame.line}, in {frame.code.co_name}\n'
    if line not in places:
        places[line] = frames.place_of(frame)
    return line


def is_own(frame: Frame) -> bool:
    """A frame of ours, which the program does not have."""
    return frame.code.co_filename.startswith(OWN_FOLDER)
