"""One interpreted frame, and the three ways its execution can end.

    Frame            code, localsplus, value stack, next instruction
    Raised           the program raised: unwinds by the exception table, as CPython would
    Finished         the frame the loop was asked to run has returned
    (Break           the tracer stops here; see stator.breaks)
"""

from __future__ import annotations

import re
import types
from typing import Any

from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from stator.code.instruction import CodeUnit, Instruction
from stator.interp.services import VM
from stator.shapes.symbolic_values import data_dependent

_WORDED = frozenset({TypeError, AttributeError, ValueError, IndexError, OverflowError})
_MEANT = {"SymInt": "int", "SymFloat": "float", "SymBool": "bool", "FakeTensor": "Tensor"}
_STAND_INS = re.compile(r"\b(?:SymInt|SymFloat|SymBool|FakeTensor)\b")


class _Unbound:
    def __repr__(self) -> str:
        return "<unbound>"


class _Null:
    def __repr__(self) -> str:
        return "<NULL>"


UNBOUND = _Unbound()  # a local slot without a value
NULL = _Null()  # CPython's NULL on the value stack


class Raised(BaseException):
    """The program's own exception on its way through our Python frames; only the loop catches it.

    torch's refusal to guess a number that only the graph knows is none of the program's: it is a break.
    """

    def __init__(self, exc: BaseException, again: bool = False, spoken: bool = False, chained: bool = False) -> None:
        if type(exc) is GuardOnDataDependentSymNode:
            raise data_dependent(exc.cond, "a number")  # type: ignore[attr-defined]
        self.of_a_tensor = not again and not spoken and type(exc) in _WORDED and speak_of_values(exc)
        super().__init__()
        self.exc = exc
        self.again = again  # a re-raise: the traceback and the context are already there
        self.chained = chained or again  # the context is what it should be, or none


def speak_of_values(exc: BaseException) -> bool:
    """'int' and not 'SymInt' in the words of C code and of the interpreter, which met what stands for a value.

    Whether a tensor is spoken of, whose class the words do not tell.
    """
    if len(exc.args) != 1 or type(exc.args[0]) is not str or not _STAND_INS.search(exc.args[0]):
        return False
    said = exc.args[0]
    exc.args = (_STAND_INS.sub(lambda found: _MEANT[found[0]], said),)
    return "FakeTensor" in said


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
    """What becomes of the value (or exception) of an interpreted frame, where it is not just pushed.

    Continuations are data, so that a break inside the callee knows what its caller still has to do.  One that says
    `resumes` can be written down and made again from its `plain` fields, which say where the program stands, its
    `held` fields, which are values of the program, and the continuation behind it in `cont`.  It asks its `vm` for
    nothing but `give`, `set_context`, `is_from_outside` and `frame`, which emit/resume/native_step.py plays where the
    caller runs natively.
    """

    __slots__ = ()
    resumes = False
    takes_absence = False  # whether it has an answer, `absent(vm)`, to a missing attribute
    plain: tuple[str, ...] = ()
    held: tuple[str, ...] = ()

    def returned(self, vm: VM, frame: "Frame", value: object) -> None:
        raise NotImplementedError

    def raised(self, vm: VM, frame: "Frame", exc: BaseException) -> bool:
        """Handle the callee's exception; False lets it unwind into `frame`."""
        return False


class SavedExc:
    """What PUSH_EXC_INFO leaves on the value stack: the exception handled before, to be put back."""

    __slots__ = ("previous", "current")

    def __init__(self, previous: BaseException | None, current: BaseException) -> None:
        self.previous, self.current = previous, current


class ExcState:
    """The exception being handled; generators have one of their own, linked to their resumer's."""

    __slots__ = ("value", "previous")

    def __init__(self, previous: "ExcState | None" = None) -> None:
        self.value: BaseException | None = None
        self.previous = previous

    def topmost(self) -> BaseException | None:
        state: ExcState | None = self
        while state is not None:
            if state.value is not None:
                return state.value
            state = state.previous
        return None


def _lines(unit: CodeUnit) -> list[int]:
    """For each next instruction, the line being executed: that of the last instruction that has one."""
    line, found = unit.code.co_firstlineno, []
    for instruction in unit.instructions:
        found.append(line)
        if instruction.line is not None:
            line = instruction.line
    return [*found, line]


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
        """The instruction being executed."""
        return self.unit.instructions[self.ip - 1 if self.ip else 0]

    @property
    def line(self) -> int:
        return self.unit.analysis("lines", _lines)[self.ip]

    def caller(self) -> "Frame | None":
        return self.parent if self.parent is not None else self.outer

    def __repr__(self) -> str:
        return f"<Frame {self.code.co_qualname} at {self.code.co_filename}:{self.line}>"
