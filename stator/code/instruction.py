"""The decoded form of a code object.   co_code, co_exceptiontable, co_linetable  ->  Instruction, CodeUnit

Jump targets and exception ranges are instruction *indexes*, never byte offsets, so an instruction list can be
edited without re-deriving them from bytes; `decode` makes units and `encode` turns them back into code.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any, NamedTuple, TypeVar

Result = TypeVar("Result")
Positions = tuple[int | None, int | None, int | None, int | None]


class ExceptionEntry(NamedTuple):
    """While control is in [start, end), an exception cuts the stack to `depth` and goes to `target`."""

    start: int
    end: int
    target: int
    depth: int
    lasti: bool  # whether the raising instruction's offset is pushed below the exception


class Slots(NamedTuple):
    """A frame's "localsplus" array: every slot's name, which hold own cells, which hold closure cells."""

    names: tuple[str, ...]
    cells: tuple[int, ...]
    free: tuple[int, ...]


class Instruction:
    """One instruction, with EXTENDED_ARG folded in and inline caches dropped.

    `arg` is the raw operand. `argval` is what it means: a constant, a name, a localsplus index (a pair of
    them for the 3.13 superinstructions), an operator symbol, an intrinsic's name, a target index, or `arg`
    itself. `flag` is the bit that rides along with it: "push NULL" of LOAD_GLOBAL, "method" of LOAD_ATTR and
    LOAD_SUPER_ATTR (whose second bit, two-argument super, stays in `arg & 2`), "coerce to bool" of COMPARE_OP
    since 3.13, "inverted" of IS_OP and CONTAINS_OP. `written` is the opcode in the bytes, which may stand for `opname`.
    """

    __slots__ = ("opname", "arg", "argval", "index", "offset", "line", "positions", "target", "handler", "flag",
                 "written")

    def __init__(self, opname: str, arg: int | None = None, argval: Any = None, index: int = -1,
                 offset: int = -1, positions: Positions | None = None, target: int | None = None,
                 handler: ExceptionEntry | None = None, flag: bool = False) -> None:
        self.opname = opname
        self.arg: Any = arg  # an int; None where the opcode has no operand
        self.argval = argval
        self.index = index
        self.offset = offset  # of the opcode itself, past any EXTENDED_ARG
        self.positions = positions  # (lineno, end_lineno, col, end_col), None where there is no location
        self.line = None if positions is None else positions[0]
        self.target: Any = target  # an index; None where the opcode does not jump
        self.handler = handler
        self.flag = flag
        self.written = opname

    def copy(self) -> Instruction:
        made = Instruction(self.opname, self.arg, self.argval, self.index, self.offset, self.positions,
                           self.target, self.handler, self.flag)
        made.written = self.written
        return made

    def __repr__(self) -> str:
        where = "" if self.line is None else f" line {self.line}"
        if self.target is not None:
            return f"<{self.index}: {self.opname} to {self.target}{where}>"
        what = "" if self.arg is None else f" {self.arg}"
        meaning = "" if self.arg is None or self.argval is self.arg else f" ({self.argval!r})"
        return f"<{self.index}: {self.opname}{what}{meaning}{where}>"


class CodeUnit:
    """A code object and its decoded body; lists of a unit that came from `decode` are shared, and are not edited.

    `analyses` holds facts about a shared body; it is None for a unit that may still be edited.
    """

    __slots__ = ("code", "instructions", "exception_table", "index_of_offset", "local_names", "cell_slots",
                 "free_slots", "nlocalsplus", "analyses")

    def __init__(self, code: CodeType, instructions: list[Instruction], exception_table: list[ExceptionEntry],
                 index_of_offset: dict[int, int], slots: Slots | None = None,
                 analyses: dict[str, Any] | None = None) -> None:
        self.code = code
        self.instructions = instructions
        self.exception_table = exception_table
        # Every even byte offset of the instruction, caches and EXTENDED_ARG included: f_lasti may be any.
        self.index_of_offset = index_of_offset
        self.local_names, self.cell_slots, self.free_slots = frame_slots(code) if slots is None else slots
        self.nlocalsplus = len(self.local_names)
        self.analyses = analyses

    def analysis(self, name: str, compute: Callable[[CodeUnit], Result]) -> Result:
        """`compute(self)`, remembered for as long as the code object lives where the body is a shared one."""
        if self.analyses is None:
            return compute(self)
        if name not in self.analyses:
            self.analyses[name] = compute(self)
        found: Result = self.analyses[name]
        return found

    def handlers(self) -> list[ExceptionEntry | None]:
        """Per instruction, the entry that covers it, read off the table rather than off the instructions."""
        covering: list[ExceptionEntry | None] = [None] * len(self.instructions)
        for entry in self.exception_table:
            covering[entry.start : entry.end] = [entry] * (entry.end - entry.start)
        return covering

    def __repr__(self) -> str:
        return f"<CodeUnit {self.code.co_qualname}, {len(self.instructions)} instructions>"


def frame_slots(code: CodeType) -> Slots:
    """The frame's slots in CPython's order: locals, cells that are not locals, free variables."""
    bound = code.co_varnames + tuple([name for name in code.co_cellvars if name not in code.co_varnames])
    names = bound + code.co_freevars
    cells = tuple([bound.index(name) for name in code.co_cellvars])
    return Slots(names, cells, tuple(range(len(bound), len(names))))
