"""One interpreted frame, the ways its execution can end, and its place in tracebacks.

    Frame            code, localsplus, value stack, next instruction
    Raised           the program raised: unwinds by the exception table, as CPython would
    Finished         the frame the loop was asked to run has returned
    (Break           the tracer stops here; see stator.breaks)
    Place            where a frame stands: an interpreted frame -> a Place; a traceback, a Place -> a longer one
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from stator import _hook
from stator.code.instruction import CodeUnit, Instruction
from stator.heap.raw_access import instance_dict
from stator.heap.tracker import Box
from stator.interp.services import VM
from stator.shapes.symbolic_values import data_dependent

_WORDED = frozenset({TypeError, AttributeError, ValueError, IndexError, OverflowError})
_MEANT = {"SymInt": "int", "SymFloat": "float", "SymBool": "bool", "FakeTensor": "Tensor"}
_STAND_INS = re.compile(r"\b(?:SymInt|SymFloat|SymBool|FakeTensor)\b")
_HOLDERS = (Box, FakeTensor, numpy.ndarray, list, tuple, dict, types.CellType)  # weak references may see others die


class _Unbound:
    def __repr__(self) -> str:
        return "<unbound>"


class _Null:
    def __repr__(self) -> str:
        return "<NULL>"


UNBOUND = _Unbound()  # a local slot without a value
NULL = _Null()  # CPython's NULL on the value stack


class Raised(BaseException):
    """An exception of the program on its way through our frames; only the loop catches it.  Unbacked numbers break."""

    def __init__(self, exc: BaseException, again: bool = False, spoken: bool = False, chained: bool = False) -> None:
        if type(exc) is GuardOnDataDependentSymNode:
            raise data_dependent(exc.cond, "a number")  # type: ignore[attr-defined]
        self.of_a_tensor = not again and not spoken and type(exc) in _WORDED and speak_of_values(exc)
        super().__init__()
        self.exc = exc
        self.again = again  # a re-raise: the traceback and the context are already there
        self.chained = chained or again  # the context is what it should be, or none


def speak_of_values(exc: BaseException) -> bool:
    """Replace names of stand-ins in a message ('int', not 'SymInt'); return whether it names a tensor."""
    if len(exc.args) != 1 or type(exc.args[0]) is not str or not _STAND_INS.search(exc.args[0]):
        return False
    said = exc.args[0]
    exc.args = (_STAND_INS.sub(lambda found: _MEANT[found[0]], said),)
    return "FakeTensor" in said


def raising(function: Callable[..., Any], *args: object) -> Any:
    """Call; an exception is the program's."""
    try:
        return function(*args)
    except Exception as error:
        raise Raised(error) from None


class Finished(BaseException):
    """The base frame of the running loop has returned or, in a generator, yielded."""

    def __init__(self, value: Any, yielded: bool = False) -> None:
        super().__init__()
        self.value = value
        self.yielded = yielded


class Bug(BaseException):
    """An error of our own, on its way out of the trace; no handler of the program may see it."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class Continuation:
    """Receiver of the value (or exception) of an interpreted frame, where it is not just pushed.

    It is data: one that `resumes` can be made again from its `plain` fields (places in the program), its `held` fields
    (values) and the continuation behind it, `cont`.  Of its `vm` it uses `give`, `set_context`, `is_from_outside` and
    `frame` alone, which emit/resume/native_step.py provides where the caller runs natively.
    """

    __slots__ = ()
    resumes = False
    takes_absence = False  # whether it has an answer, `absent(vm)`, to a missing attribute
    plain: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()  # all slots, in the order of the constructor
    cont: Any = None

    if TYPE_CHECKING:
        def __getattr__(self, name: str) -> Any: ...

    def __init_subclass__(cls) -> None:
        cls.fields = (*cls.fields, *cls.__dict__.get("__slots__", ()))

    def __init__(self, *values: Any) -> None:
        assert len(values) == len(self.fields)
        for number in range(len(values)):  # zip() would allocate pairs: the program can see the addresses that are free
            setattr(self, self.fields[number], values[number])

    def returned(self, vm: VM, frame: "Frame", value: object) -> None:
        """Take the callee's value; by default, pass it on."""
        vm.give(value, self.cont)

    def raised(self, vm: VM, frame: "Frame", exc: BaseException) -> bool:
        """Handle the callee's exception; False lets it unwind into `frame`."""
        return False


class SavedExc:
    """Entry of PUSH_EXC_INFO on the value stack: the exception handled before, to be put back."""

    __slots__ = ("previous", "current")

    def __init__(self, previous: BaseException | None, current: BaseException) -> None:
        self.previous, self.current = previous, current


def add_entries(stack: list[Any], values: list[Any]) -> tuple[str, ...]:
    """Append what the entries of a value stack hold to `values`, which alone holds them; the kind of each."""
    kinds: list[str] = []
    for item in stack:
        if item is NULL:
            kinds.append("null")
        elif type(item) is SavedExc:
            kinds.append("exc_info")
            values += [item.previous, item.current]
        else:
            kinds.append("value")
            values.append(item)
    return tuple(kinds)


def stack_of(kinds: Iterable[str], take: Callable[[], Any]) -> list[Any]:
    """A value stack with entries of these kinds, from values in their order."""
    return [NULL if kind == "null" else SavedExc(take(), take()) if kind == "exc_info" else take() for kind in kinds]


class ExcState:
    """The exception being handled; generators have one of their own, linked to their resumer's."""

    __slots__ = ("value", "previous", "of_caller")

    def __init__(self, of_caller: BaseException | None = None) -> None:
        self.value: BaseException | None = None
        self.previous: ExcState | None = None
        self.of_caller = of_caller  # handled by the caller of the compiled function

    def topmost(self) -> BaseException | None:
        state: ExcState | None = self
        while state is not None:
            if state.value is not None:
                return state.value
            state = state.previous
        return None

    def outside(self) -> BaseException | None:
        return self.of_caller if self.previous is None else self.previous.outside()


class Frame:
    """An activation of a code object."""

    __slots__ = ("code", "unit", "program", "func", "locals", "stack", "ip", "parent", "scope", "names",
                 "cont", "generator", "kwnames", "is_base", "outer", "builtins", "step", "level", "above",
                 "segment", "region", "shown_locals")

    def __init__(self, unit: CodeUnit, program: list[Any], func: types.FunctionType | None, local_slots: list[Any],
                 scope: Any) -> None:
        self.unit = unit
        self.code = unit.code
        self.program = program
        self.func = func
        self.locals = local_slots
        self.stack: list[Any] = []
        self.ip = 0
        # The caller, where it is, its own `above`; of all of these: their text, and what they would catch.
        self.above: tuple[Any, ...] = (None, -1, None, "", 0)
        self.parent: Frame | None = None  # the interpreted caller
        self.outer: Frame | None = None  # for a base frame: the frame whose native call led here
        self.scope = scope
        self.names: Any = None  # f_locals of a class body
        self.shown_locals: dict[str, Any] | None = None  # what locals() has given of it
        self.cont: Any = None
        self.generator: Any = None
        self.kwnames: tuple[str, ...] = ()
        self.is_base = False
        self.builtins: Any = None
        self.segment: Any = None  # what is remembered of a module's call (see replay)
        self.region: Any = None  # the named call around it; None: not looked for (see named_regions)
        self.level = 0  # how many interpreted frames are below
        self.step = 0  # when its current instruction began, counted over the whole trace

    @property
    def instruction(self) -> Instruction:
        return self.unit.instructions[self.ip - 1 if self.ip else 0]

    @property
    def line(self) -> int:
        """That of the last instruction begun that has one."""
        ip, instructions = self.ip, self.unit.instructions
        while ip:
            ip -= 1
            if (line := instructions[ip].line) is not None:
                return line
        return self.code.co_firstlineno

    def caller(self) -> "Frame | None":
        return self.parent if self.parent is not None else self.outer

    def __repr__(self) -> str:
        return f"<Frame {self.code.co_qualname} at {self.code.co_filename}:{self.line}>"


@dataclass(frozen=True, eq=False)
class Place:
    """Where a frame stands, as a traceback shows it."""

    code: types.CodeType
    namespace: dict[str, Any]
    lasti: int
    line: int


@dataclass(frozen=True, eq=False)
class Unwound:
    """An outside exception passed this frame: its traceback grows when the effects are written."""

    exc: BaseException
    place: Place
    held: dict[str, Any]


def locals_of(frame: Frame, outside: dict[int, Any]) -> dict[str, Any]:
    """Locals of a frame that an exception leaves: memory that lives as long as the traceback, and outside objects."""
    found: dict[str, Any] = {}
    for name, value in zip(frame.unit.local_names, frame.locals, strict=False):
        if type(value) in _HOLDERS or id(value) in outside:
            found[name] = value
        elif own := [part for part in (instance_dict(value) or {}).values() if type(part) is FakeTensor]:
            found[name] = own
    return found


def place_of(frame: Frame) -> Place:
    instruction = frame.instruction
    return Place(frame.code, frame.scope.namespace, instruction.offset, instruction.line or frame.code.co_firstlineno)


def last_offset(frame: Frame) -> int:
    """f_lasti: RERAISE with an argument goes back to the instruction that its handler was entered from."""
    instruction = frame.instruction
    if instruction.opname == "RERAISE" and instruction.arg and type(frame.stack[-instruction.arg]) is int:
        return int(frame.stack[-instruction.arg]) * 2
    return int(instruction.offset)  # or a break lies in between, and the number is unread


def outward(frame: Frame | None) -> Iterator[Frame]:
    """A frame and its callers, the innermost first."""
    while frame is not None:
        yield frame
        frame = frame.caller()


def places_from(frame: Frame | None) -> tuple[Place, ...]:
    return tuple([place_of(each) for each in outward(frame) if each.func is not None])


def frame_at(place: Place, held: dict[str, Any] | None = None) -> types.FrameType:
    frame: types.FrameType = _hook.new_frame(place.code, place.namespace, held or {})
    _hook.set_lasti(frame, place.lasti)
    return frame


class FrameObjects:
    """Frame objects of tracebacks, each for one interpreted frame that is not over; they show where it stands."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[Frame, types.FrameType]] = {}
        self.held: dict[int, dict[str, Any]] = {}  # of a frame object, by id -> locals of the frame that was left

    def __bool__(self) -> bool:
        return bool(self._made)

    def of(self, frame: Frame) -> types.FrameType:
        if frame.generator is not None:  # suspended, it is over when nobody holds it any more
            return frame_at(place_of(frame))
        known = self._made.get(id(frame))
        if known is None:
            known = self._made[id(frame)] = frame, frame_at(place_of(frame))
        return known[1]

    def left(self, frame: Frame, held: dict[str, Any] | None = None) -> None:
        """The interpreted frame is over: its object shows the last instruction from now on, and holds locals."""
        known = self._made.pop(id(frame), None)
        if known is not None:
            self.held[id(known[1])] = held or {}
            _hook.set_lasti(known[1], last_offset(frame))

    def update(self, shown: types.FrameType) -> None:
        for frame, known in self._made.values():
            if known is shown:
                _hook.set_lasti(shown, last_offset(frame))


def with_place(traceback: types.TracebackType | None, place: Place,
               shown: types.FrameType | None = None) -> types.TracebackType:
    """The traceback, seen from a frame further out; `shown`: its object, where it has one."""
    frame = frame_at(place) if shown is None else shown
    return types.TracebackType(traceback, frame, place.lasti, place.line)


def add_place(exc: BaseException, place: Place, held: dict[str, Any] | None = None) -> None:
    """Add a place to the traceback of an exception, as unwinding does; called by the residual."""
    exc.__traceback__ = with_place(exc.__traceback__, place, frame_at(place, held))


def with_locals(traceback: types.TracebackType | None, held: dict[int, dict[str, Any]]) -> types.TracebackType | None:
    """A copy of a traceback in which frames hold locals; `held`: by number, the outermost first."""
    entries = []
    while traceback is not None:
        entries.append(traceback)
        traceback = traceback.tb_next
    for number in reversed(range(len(entries))):
        each = entries[number]
        frame = each.tb_frame
        if number in held:
            frame = frame_at(Place(frame.f_code, frame.f_globals, frame.f_lasti, each.tb_lineno), held[number])
        traceback = types.TracebackType(traceback, frame, each.tb_lasti, each.tb_lineno)
    return traceback
