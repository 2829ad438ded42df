"""The loop: run a frame until it returns, unwinding the program's exceptions as CPython does.

In: a root frame with its arguments boxed.  Out: the value it returns, or the exception it raises
(`Raised`), or a `Break` carrying the user's place.  Calls between interpreted functions do not recurse.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping
from typing import Any

import torch

from stator import events
from stator.breaks import Break
from stator.code.decode import decode
from stator.code.opcodes import ALL_OPNAMES
from stator.errors import UserFrame
from stator.graph.analysis.may_fail import ANY, CLEANUP, HANDLED
from stator.graph.fx.straight_line import AT
from stator.heap.heap import Heap
from stator.heap.pure_readers import traceback_of
from stator.heap.tracker import Shape
from stator.host.own_code import OWN_FOLDER
from stator.interp.frame import Bug, ExcState, Finished, Frame, Raised
from stator.interp.handled_errors import any_cleans_up, caught_in, note
from stator.interp.progress import LOOK_MASK, Progress
from stator.interp.tracebacks import FrameObjects, Place, Unwound, last_offset, place_of, with_place
from stator.source import CallOf, Pinned
from stator.strategy import Strategy

Handler = Callable[["Machine", Frame, Any], None]
NOWHERE: tuple[Any, int, Any] = (None, -1, None)
DEPTH_LIMIT = 900  # where CPython's own limit of 1,000 may be near: the program then runs as it is
HANDLERS: dict[str, Handler] = {}  # by opname; filled by the ops_* modules through @op


DECLINED: dict[str, str] = {}  # opcodes that break, with their code


def op(handler: Handler) -> Handler:
    """Register a handler under the opcode it is named after, if the running version has it."""
    if handler.__name__ in ALL_OPNAMES:
        HANDLERS[handler.__name__] = handler
    return handler


def also(name: str, handler: Handler) -> None:
    """Register a handler under another opcode's name, if the running version has that opcode."""
    if name in ALL_OPNAMES:
        HANDLERS[name] = handler


def declined(code: str, *names: str) -> None:
    """Opcodes that are known and break, with a code."""
    known = [name for name in names if name in ALL_OPNAMES]
    DECLINED.update(dict.fromkeys(known, code))
    for name in known:
        def handler(vm: "Machine", frame: Frame, instr: Any, name: str = name) -> None:
            raise Break(code, name)
        HANDLERS[name] = handler


def program_of(unit: Any) -> list[tuple[Handler, Any]]:
    """Each instruction beside its handler, worked out once per code object."""
    if events.lines_wanted():
        return [(_told(handler), i) for handler, i in ((HANDLERS[i.opname], i) for i in unit.instructions)]
    program = unit.analyses.get("program")
    if program is None:
        program = unit.analyses["program"] = [(HANDLERS[i.opname], i) for i in unit.instructions]
    return program


def _told(handler: Handler) -> Handler:
    """The handler, after an event at the first instruction of each line."""
    def tell(vm: "Machine", frame: Frame, instr: Any) -> None:
        before = frame.unit.instructions[instr.index - 1].line if instr.index else None
        if instr.line is not None and instr.line != before:
            events.emit(events.LineTraced(frame.code.co_filename, instr.line, frame.code.co_qualname))
        handler(vm, frame, instr)
    return tell


class Thunk(Frame):
    """A base frame that does one thing of ours and returns the value it gets."""

    __slots__ = ()

    def __init__(self, begin: Callable[[], None]) -> None:
        program = [(_begin(begin), _THUNK.instructions[0]), (_end, _THUNK.instructions[1])]
        super().__init__(_THUNK, program, None, [], None)


def _begin(begin: Callable[[], None]) -> Any:
    def handler(vm: Any, frame: Frame, instr: Any) -> None:
        begin()
    return handler


def _end(vm: Any, frame: Frame, instr: Any) -> None:
    raise Finished(frame.stack.pop())


def _stub() -> None:
    pass


_THUNK = decode(_stub.__code__)


class Machine:
    """The state of one trace: the frame stack, the exception being handled, the heap and the recorder."""

    def __init__(self, heap: Heap, recorder: Any) -> None:
        self.heap = heap
        self.recorder = recorder
        self.frame: Frame | None = None
        self.exc_state = ExcState()
        self.depth = 0
        self.handed: dict[int, None] = {}  # the ids of what the entry was called with
        self.escaped: BaseException | None = None  # the program's, on its way through C code or a nested run
        self.indexes_stay_tensors = False  # inside the functions of an attention, whose positions are tensors
        self.index_modes: list[Any] = []  # of torch's that ask for just that
        self.pending: BaseException | None = None  # a Break that C code might swallow
        self.lookups: dict[tuple[type, str], Any] = {}
        self.ancestry: set[type] = set()  # classes whose MRO is guarded
        self.named_classes: set[type] = set()  # whose names are guarded
        self.asked_classes: set[type] = set()  # whose special methods are guarded
        self.fresh: dict[int, Any] = {}  # functions, classes and modules made by the trace
        self.type_parameters: dict[int, tuple[Any, str, tuple[Any, ...]]] = {}  # made by intrinsics: which, from what
        self.generators: dict[int, Any] = {}
        self.bodies: list[Any] = []  # weak references to the bodies of all generators made inside
        self.defaults: dict[int, Any] = {}
        self.class_overlays: dict[type, dict[str, Any]] = {}
        self.reborn: set[tuple[type, str]] = set()  # deleted and set again: last in the class from now on
        self.locks: dict[int, Any] = {}  # of an outside lock -> how the program has used it
        self.output_lines: set[tuple[str, int]] = set()  # which write output, that may fail when it is replayed
        self.watched_effects = False  # whether code of the user's runs when the effects are replayed
        self.draws: list[Any] = []  # random numbers that the residual draws, in order
        self.copies: list[Any] = []  # copies of tensors that the residual makes before the graph, in order
        self.copy_memos: dict[int, Any] = {}  # of a memo of deepcopy() -> which tensors were copied with it
        self.decimal_context: Any = None  # on which the trace computes decimals
        self.context_sets: list[Any] = []  # values of context variables, that are set now and were not at the start
        self.lock_answers: dict[Any, Any] = {}  # what it was told of locks that it has not used
        self.cache_fills: dict[int, list[tuple[Any, Any]]] = {}  # of an outside lru_cache -> its new results
        self.functions_off_before: list[tuple[Any, int]] = []  # contexts that turn `__torch_function__` off, entered
        self.tensor_attributes: dict[int, dict[str, Any]] = {}
        self.shown_addresses: dict[int, Any] = {}  # objects of the trace whose default repr was made
        self.making_classes = 0  # how many type.__new__ are running
        self.callbacks: dict[int, Any] = {}  # functions that stand for C callables inside C iterators
        self.effects: list[Any] = []
        self.assertions: list[Any] = []  # what failed assertions of the graph mean to the program
        self.capture_control_flow = False  # branches on data become operations of the graph where they can
        self.strict = False  # whether what would do no harm here, but is wrong, raises
        self.replay: Any = None  # of repeated structure, where the settings allow it
        self.effects_break = False  # print and its like break instead of being replayed
        self.error_policy: bool | None = None  # of the innermost error_on_graph_break region; None: there is none
        self.early_effects = 0  # how many of them come before the program's first change of anything outside
        self.torch_state = recorder.torch_state
        self.autograd_nodes: dict[int, Any] = {}  # the grad_fn of fake tensors
        self.tensor_grads: dict[int, tuple[Any, Any]] = {}  # id of a fake -> (it, what the program made its .grad)
        self.hooks: dict[int, tuple[Any, Any]] = {}  # id of a handle -> (it, its hook on a tensor; None: removed)
        self.known_streams: dict[int, Any] = {}  # random streams of the trace's own (see known_streams)
        self.seeded_streams: dict[int, tuple[Any, Any]] = {}  # a stream from outside -> it, the one in its place
        self.filter_managers: dict[int, Any] = {}  # the catch_warnings that the program has entered
        self.filters_changed = False  # of warnings: those of the process are as they were until the residual runs
        self.addresses: set[int] = set()  # of tuples made inside the trace, which it does not hold
        self.asked_ids: dict[int, Any] = {}  # of objects made inside the trace: the residual's have others
        self.asked_hashes: dict[int, Any] = {}  # the same, of hashes that are made of addresses
        self.grad_flags: dict[int, Any] = {}  # id of a fake -> how its flag changes (see interp/tensors/grad_flags)
        self.data_notes: dict[int, Any] = {}  # id of a fake -> the memory it gets (see interp/tensors/data_assignments)
        self.tells_of_deaths = False  # whether a weak reference with a callback was made (see rules_references)
        self.compiled_inside: dict[int, Any] = {}  # compiled functions made by the trace (see compiled_inside)
        self.watches: dict[int, Any] = {}  # id of a BackwardHook made inside -> (it, its node)
        self.new_leaves: list[Any] = []  # tensors of the graph that were made to require a gradient
        self.retained: dict[int, Any] = {}  # tensors of the graph that are to keep their gradients, by id
        self.turned_off: set[Strategy] = set()  # ways of capturing that break instead (see CallSite)
        self.frame_objects = FrameObjects()
        self.not_rebuilt: set[type] = set()  # C types whose values no residual can make (see CallSite)
        self.compiling_shown = False  # torch.compiler.is_compiling() returned True
        self.why_off: Mapping[Strategy, str] = {}
        self.runs_once = False  # whether a call that must not run twice is recorded (see effects_order)
        self.places: dict[str, Place] = {}  # by their line in the stack traces of nodes
        self.located: tuple[Any, int, Any] = NOWHERE  # a code object, an instruction of it, its place
        self.jumps = self.pushes = 0  # backward jumps and calls so far
        self.progress = Progress()
        self.steps = 0  # instructions begun by the outermost loop
        self.stop_step = -1  # where to stop: set when a trace is repeated up to the place of a break
        self.stop: Break = None  # type: ignore[assignment]
        recorder.place = self.place_node
        recorder.expose = heap.expose_deep
        heap.locate = recorder.locate = self.location
        heap.run_native = self.native

    # ------------------------------------------------------------------ the loop

    def run(self, frame: Frame, start: Frame | None = None, thrown: BaseException | None = None) -> Any:
        """Run `frame` to its end; the program's exception leaves as itself, not as Raised.

        `start`, for a resumed stack, is the innermost frame; `thrown` is raised there first.
        """
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
                            raise self.stop
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
                if unnamed and self.caught() & HANDLED and self.has_classes_of_tensors():
                    unsaid = Break("SB017", "the words of an error about a tensor, which may be a Parameter")
                    self.place(unsaid)
                    failed = True
                    raise unsaid
                if exc.args and self.caught() & HANDLED:
                    self.guard_names_in(exc)
                self.unwind(exc, again, chained)
        finally:
            if not failed:
                self.frame = outer
            self.depth -= 1

    def has_classes_of_tensors(self) -> bool:
        """Whether the trace has met a tensor of another class than torch.Tensor."""
        return bool(self.recorder.classes) or any(
            tracker.shape is Shape.TENSOR and type(tracker.original) is not torch.Tensor
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
                self._add_traceback(exc, frame, instr)
            again = False
            entry = instr.handler
            if entry is not None:
                offset = last_offset(frame) if entry.lasti else 0
                del frame.stack[entry.depth:]
                if entry.lasti:
                    frame.stack.append(offset // 2)
                frame.stack.append(exc)
                frame.ip = entry.target
                return
            self.frame_objects.left(frame)
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
        current = self.exc_state.topmost()
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

    def _add_traceback(self, exc: BaseException, frame: Frame, instr: Any) -> None:
        if id(exc) in self.heap.by_standin:  # the user's exception: nothing is written on it while tracing
            if frame.func is not None and not is_own(frame):
                self.effects.append(Unwound(exc, place_of(frame)))
            return
        tb = exc.__traceback__
        while tb is not None and tb.tb_frame.f_code.co_filename.startswith(OWN_FOLDER):
            tb = tb.tb_next  # our own frames, below the interpreted ones
        if frame.func is not None and not is_own(frame):
            tb = with_place(tb, place_of(frame), self.frame_objects.of(frame))
        exc.__traceback__ = tb

    def traceback_of(self, exc: BaseException) -> types.TracebackType | None:
        """The traceback of an exception; of one from outside, what it came with and what the trace has unwound."""
        if not self.is_from_outside(exc):
            return exc.__traceback__
        tracker = self.heap.by_standin[id(exc)]
        before, source = traceback_of(tracker.original), CallOf(Pinned(traceback_of), (tracker.source,))
        places = [effect.place for effect in self.effects if type(effect) is Unwound and effect.exc is exc]
        if before is not None and places:
            raise Break("SB020", "the traceback of an exception that was raised before the call")
        traceback = self.heap.adopt(before, source)
        for place in places:
            traceback = with_place(traceback, place)
        return traceback

    def native(self, fn: Any, args: Any, kwargs: Any = None) -> Any:
        raise NotImplementedError

    def guard_names_in(self, error: BaseException) -> None:
        raise NotImplementedError

    # ------------------------------------------------------------------ frames

    def push(self, frame: Frame, cont: Any = None) -> None:
        """Call into `frame`; its result goes to the current frame's stack, or to `cont`."""
        frame.parent = caller = self.frame
        frame.cont = cont
        frame.level = level = caller.level + 1  # type: ignore[union-attr]
        if level > DEPTH_LIMIT:
            raise Break("SB011", f"{DEPTH_LIMIT} nested calls")
        self.frame = frame
        self.pushes += 1
        if not self.pushes & LOOK_MASK:
            self.progress.look(self)

    def give(self, value: Any, cont: Any = None) -> None:
        """Hand a value computed at once to whoever asked for it."""
        if cont is None:
            self.frame.stack.append(value)  # type: ignore[union-attr]
        else:
            cont.returned(self, self.frame, value)

    def leave(self, frame: Frame, value: Any) -> None:
        """`frame` returns `value`; its locals die now, as a generator among them may have a `finally` to run."""
        frame.locals.clear()
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

    def is_from_outside(self, value: Any) -> bool:
        return id(value) in self.heap.by_standin

    # ------------------------------------------------------------------ places

    def location(self) -> tuple[str, int, str] | None:
        frame = self.frame
        if frame is not None and frame.code is self.located[0] and frame.ip == self.located[1]:
            return self.located[2]  # an instruction adds several guards
        here = frame
        while frame is not None and is_own(frame):
            frame = frame.caller()
        if frame is None:
            return None
        found = (frame.code.co_filename, frame.line, frame.code.co_name)
        if frame is here:
            self.located = (frame.code, frame.ip, found)
        return found

    def append_output(self, effect: Any) -> None:
        """Replay output later."""
        if (here := self.location()) is not None:
            self.output_lines.add(here[:2])
        self.effects.append(effect)

    def stack(self) -> list[UserFrame]:
        """The user's frames, outermost first."""
        found = []
        frame = self.frame
        while frame is not None:
            if not is_own(frame):
                found.append(UserFrame(frame.code.co_filename, frame.line, frame.code.co_qualname))
            frame = frame.caller()
        return found[::-1]

    def stack_trace(self) -> str:
        """The user's stack as text, for the metadata of a graph node."""
        frame = self.frame
        return "" if frame is None else _callers(frame, self)[3] + _frame_line(frame, self.places)

    def place_node(self, node: Any) -> None:
        """Put on a node of the graph where the program stands, and what might catch its error."""
        frame = self.frame
        if frame is None:
            node.meta["stack_trace"] = ""
            return
        above = _callers(frame, self)
        line = _frame_line(frame, self.places)
        node.meta["stack_trace"] = above[3] + line
        if line:
            node.meta[AT] = frame.instruction.offset
        if caught := above[4] | caught_in(frame, self.generators):
            note(node, caught, Strategy.HANDLED_ERRORS in self.turned_off)
        if self.generators and any_cleans_up(self.generators):
            note(node, CLEANUP, False)

    def caught(self) -> int:
        """What the program might catch where it stands (see handled_errors)."""
        frame = self.frame
        return 0 if frame is None else _callers(frame, self)[4] | caught_in(frame, self.generators)

    def place(self, stop: Break) -> None:
        """Tell a break where in the user's program it is (once, at the innermost frame)."""
        if not getattr(stop, "stack", None):
            stack = self.stack()
            stop.stack = tuple(stack)
            if stack:
                stop.filename, stop.line = stack[-1].filename, stack[-1].line
        self.pending = stop


_RESUMABLE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def _callers(frame: Frame, vm: Any) -> tuple[Any, ...]:
    """The text of the frames above and what they would catch, kept while they stand where they stood."""
    caller = frame.caller()
    if caller is None:
        return frame.above
    kept = frame.above
    if kept[0] is caller and not frame.code.co_flags & _RESUMABLE:
        return kept  # a call stays where it was made
    above = _callers(caller, vm)
    if kept[0] is not caller or kept[1] != caller.ip or kept[2] is not above:
        text = above[3] + _frame_line(caller, vm.places)
        # C code between the two may catch as well: an IndexError of `__getitem__` ends an iteration.
        caught = ANY if frame.is_base else above[4] | caught_in(caller, vm.generators)
        kept = frame.above = (caller, caller.ip, above, text, caught)
    return kept


def _frame_line(frame: Frame, places: dict[str, Place]) -> str:
    if is_own(frame):
        return ""
    line = f'  File "{frame.code.co_filename}", line {frame.line}, in {frame.code.co_name}\n'
    if line not in places:
        places[line] = place_of(frame)
    return line


def is_own(frame: Frame) -> bool:
    """A frame of ours, which the program does not have."""
    return frame.code.co_filename.startswith(OWN_FOLDER)
