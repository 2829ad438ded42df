"""The verifier passes what CPython compiled and refuses what would crash it."""

from __future__ import annotations

from code_verifier import BadCode, check, verify

from stator.code.decode import decode
from stator.code.instruction import CodeUnit, ExceptionEntry, Instruction
from stator.code.opcodes import VERSION
from tests.unit.code.code_verifier import editable


def subject(x, y):  # type: ignore[no-untyped-def]
    try:
        for item in x:
            y += item.value
    except TypeError:
        return None
    return y


def edited(first: str, /, **fields: object) -> CodeUnit:
    unit = editable(decode(subject.__code__))
    instruction = next(i for i in unit.instructions if i.opname == first)
    for name, value in fields.items():
        setattr(instruction, name, value)
    return unit


def only_problem(unit: CodeUnit) -> str:
    problems = verify(unit)
    assert len(problems) == 1, problems
    return problems[0]


def test_compiled_code_is_sound() -> None:
    assert verify(subject.__code__) == [] and verify(decode(subject.__code__)) == []
    check(subject.__code__)


def test_operands_out_of_range() -> None:
    assert "constants" in only_problem(edited("RESUME", opname="LOAD_CONST", arg=50))
    assert "names" in only_problem(edited("LOAD_ATTR", arg=50))
    slots = "LOAD_FAST_LOAD_FAST" if VERSION == (3, 13) else "STORE_FAST"
    assert f"of {len(subject.__code__.co_varnames)}" in only_problem(edited(slots, arg=15))


def test_jumps_out_of_range_or_backward() -> None:
    assert "no target" in only_problem(edited("FOR_ITER", target=900))
    assert "wrong way" in only_problem(edited("FOR_ITER", target=0))
    assert "wrong way" in only_problem(
        edited("JUMP_BACKWARD", target=decode(subject.__code__).instructions[-1].index)
    )


def test_unknown_opcode() -> None:
    assert "no opcode" in only_problem(edited("GET_ITER", opname="EXTENDED_ARG"))


def test_paths_that_disagree_or_underflow() -> None:
    # Without its operator the loop leaves a value behind at every turn.
    assert any("is reached with depths" in problem for problem in verify(edited("BINARY_OP", opname="NOP")))
    popped = [
        Instruction("RESUME", 0),
        Instruction("POP_TOP"),
        Instruction("LOAD_CONST", 0),
        Instruction("RETURN_VALUE"),
    ]
    assert "empty stack" in verify(CodeUnit(subject.__code__, popped, [], {}))[0]


def test_pairs_stay_together() -> None:
    def generate():  # type: ignore[no-untyped-def]
        yield 1

    unit = editable(decode(generate.__code__))
    at = next(i.index for i in unit.instructions if i.opname == "YIELD_VALUE")
    unit.instructions[at + 1].opname = "NOP"
    assert only_problem(unit) == f"instruction {at}: YIELD_VALUE needs RESUME after it"
    if VERSION > (3, 11):
        unit = edited("END_FOR", opname="NOP")
        assert any("FOR_ITER needs END_FOR at its target" in problem for problem in verify(unit))


def test_running_off_the_end() -> None:
    falls = CodeUnit(subject.__code__, [Instruction("RESUME", 0), Instruction("NOP")], [], {})
    assert "runs off the end" in only_problem(falls)
    assert "no instructions" in only_problem(CodeUnit(subject.__code__, [], [], {}))


def test_exception_ranges() -> None:
    unit = editable(decode(subject.__code__))
    unit.exception_table.append(ExceptionEntry(0, 1, 2, 0, False))
    assert "starts before" in only_problem(unit)
    unit.exception_table[:] = [ExceptionEntry(0, 900, 2, 0, False)]
    assert "does not fit" in only_problem(unit)
    unit = editable(decode(subject.__code__))
    first = unit.exception_table[0]
    unit.exception_table[0] = first._replace(depth=first.depth + 9)
    assert any("its handler keeps 9" in problem for problem in verify(unit))


def test_a_code_object_is_held_to_its_stack_size() -> None:
    small = subject.__code__.replace(co_stacksize=1)
    assert any("over co_stacksize 1" in problem for problem in verify(small))
    try:
        check(small)
    except BadCode as error:
        assert error.problems == verify(small) and "subject" in str(error)
    else:
        raise AssertionError("a stack too small was accepted")


def test_malformed_bytes_are_a_problem_not_a_crash() -> None:
    assert "out of range" in verify(subject.__code__.replace(co_names=()))[0]
