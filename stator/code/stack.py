"""How deep the value stack is.   Instruction  ->  effect;   CodeUnit  ->  depth everywhere, co_stacksize

The effects are declared in `stack_effects` rather than taken from `dis.stack_effect`: the interpreter checks its
handlers against them, and CPython's own table is silent where a generator starts.
"""

from __future__ import annotations

from .instruction import CodeUnit, ExceptionEntry, Instruction
from .opcodes import NO_FALLTHROUGH
from .stack_effects import net_effect


def effect(instruction: Instruction, jump: bool) -> int:
    """Net values pushed by `instruction`, falling through or (where it can) jumping.

    RETURN_GENERATOR counts the value that the generator's first resumption pushes.
    """
    return net_effect(instruction.opname, instruction.arg or 0, jump)


def handler_depth(entry: ExceptionEntry) -> int:
    """The depth where a handler starts: what is kept, the raising offset if asked for, the exception."""
    return entry.depth + entry.lasti + 1


def depths(unit: CodeUnit) -> list[int | None]:
    """The depth before each instruction, None where no path reaches it."""
    return unit.analysis("depths", _depths_alone)


def _depths_alone(unit: CodeUnit) -> list[int | None]:
    return flow_depths(unit)[0]


def flow_depths(unit: CodeUnit) -> tuple[list[int | None], list[str]]:
    """The depth before each instruction by following every path, and where two paths disagree."""
    instructions, handlers = unit.instructions, unit.handlers()
    found: list[int | None] = [None] * len(instructions)
    conflicts: list[str] = []
    pending = [(0, 0)] if instructions else []
    while pending:
        index, depth = pending.pop()
        known = found[index]
        if known is not None:
            if known != depth:
                conflicts.append(f"instruction {index} is reached with depths {known} and {depth}")
            continue
        found[index] = depth
        instruction = instructions[index]
        handler = handlers[index]
        if handler is not None:
            pending.append((handler.target, handler_depth(handler)))
        if instruction.target is not None:
            pending.append((instruction.target, depth + effect(instruction, True)))
        if instruction.opname not in NO_FALLTHROUGH:
            if index + 1 < len(instructions):
                pending.append((index + 1, depth + effect(instruction, False)))
            else:
                conflicts.append(f"instruction {index} runs off the end")
    return found, conflicts


def max_depth(unit: CodeUnit) -> int:
    """The co_stacksize that `unit` needs."""
    found = depths(unit)
    deepest = 0
    for instruction, depth in zip(unit.instructions, found, strict=True):
        if depth is None:
            continue
        deepest = max(deepest, depth, depth + effect(instruction, False))
        if instruction.target is not None:
            deepest = max(deepest, depth + effect(instruction, True))
    return deepest
