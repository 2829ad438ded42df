"""Edited instruction lists run as they read."""

from __future__ import annotations

from types import CodeType, FunctionType
from typing import Any

from code_verifier import check

from stator.code.decode import decode
from stator.code.encode import encode_parts
from stator.code.instruction import CodeUnit, ExceptionEntry, Instruction
from stator.code.opcodes import BY_NAME
from tests.unit.code.code_verifier import FOLLOWED_BY, editable, encode

PROGRAM = """
def loop(n):
    total = 0
    for i in range(n):
        if i % 3 == 0:
            continue
        total += i if i % 2 else -i
        while total > 50:
            total -= 7
    else:
        total += 1000
    return total

def guarded(x):
    seen = []
    try:
        with Recorder(seen):
            seen.append(10 // x)
            try:
                seen.append({"a": 1}[x])
            except KeyError as error:
                seen.append(repr(error))
                raise ValueError(str(x)) from error
    except (ValueError, ZeroDivisionError) as error:
        seen.append(type(error).__name__)
    finally:
        seen.append("finally")
    return seen

def generate(n):
    received = yield "start"
    while n:
        n -= 1
        received = yield n, received
    return (yield from range(3))

def closures(x):
    def inner(y=2, *rest, z, **named):
        nonlocal x
        x += y + z
        return [x + q for q in rest], {k: v for k, v in named.items()}
    return inner(1, 2, 3, z=4, w=5), x

def match(x):
    match x:
        case [1, *rest]:
            return rest
        case {"k": v, **others}:
            return v, others
        case complex(real=r):
            return r
        case _:
            return f"{x!r:>10}"
"""


class Recorder:
    def __init__(self, seen: list[Any]) -> None:
        self.seen = seen

    def __enter__(self) -> None:
        self.seen.append("enter")

    def __exit__(self, kind: Any, value: Any, trace: Any) -> bool:
        self.seen.append(None if kind is None else kind.__name__)
        return False


def drive(namespace: dict[str, Any]) -> list[Any]:
    """The results of the program's functions, as plain values."""
    results: list[Any] = [namespace["loop"](n) for n in (0, 1, 40)]
    results += [namespace["guarded"](x) for x in (0, 3, 5)]
    generator = namespace["generate"](2)
    steps = [next(generator)]
    try:
        while True:
            steps.append(generator.send(len(steps)))
    except (StopIteration, TypeError, AttributeError) as stop:
        steps.append(repr(stop))
    results += [steps, namespace["closures"](5)]
    results += [namespace["match"](x) for x in ([1, 2, 3], {"k": 1, "j": 2}, 3j, "other")]
    return results


def padded(unit: CodeUnit, width: int) -> CodeUnit:
    """`unit` with `width` NOPs after every instruction that is not half of a pair."""
    edited = editable(unit)
    moved: list[int] = []
    instructions: list[Instruction] = []
    for instruction in edited.instructions:
        moved.append(len(instructions))
        instructions.append(instruction)
        if instruction.opname not in FOLLOWED_BY:
            instructions += [Instruction("NOP", positions=instruction.positions) for _ in range(width)]
    moved.append(len(instructions))
    for instruction in instructions:
        if instruction.target is not None:
            instruction.target = moved[instruction.target]
    edited.instructions = instructions
    edited.exception_table = [
        ExceptionEntry(moved[e.start], moved[e.end], moved[e.target], e.depth, e.lasti)
        for e in edited.exception_table
    ]
    return edited


def rebuilt(code: CodeType, width: int) -> CodeType:
    constants = tuple(rebuilt(c, width) if isinstance(c, CodeType) else c for c in code.co_consts)
    result = encode(padded(decode(code), width), co_consts=constants)
    check(result)
    return result


def run(code: CodeType) -> list[Any]:
    namespace: dict[str, Any] = {"Recorder": Recorder}
    exec(code, namespace)
    return drive(namespace)


def test_a_round_trip_runs_the_same() -> None:
    code = compile(PROGRAM, "program", "exec")
    assert run(rebuilt(code, 0)) == run(code)


def test_padding_runs_the_same() -> None:
    code = compile(PROGRAM, "program", "exec")
    assert run(rebuilt(code, 1)) == run(code)


def test_padding_past_one_byte_jumps_runs_the_same() -> None:
    code = compile(PROGRAM, "program", "exec")
    wide = rebuilt(code, 70)
    assert len(wide.co_consts[0].co_code) > 2 * 256 * 2  # so that some jumps need an EXTENDED_ARG
    assert run(wide) == run(code)


def test_very_long_jumps() -> None:
    body = "\n".join(f"        x = x + {n} if x is not None else x" for n in range(9000))
    namespace: dict[str, Any] = {}
    exec(f"def subject(x, n):\n    while n:\n        n -= 1\n{body}\n    return x", namespace)
    subject = namespace["subject"]
    again = encode(decode(subject.__code__))
    assert again.co_code == subject.__code__.co_code and len(again.co_code) > 2 * 65536
    assert FunctionType(again, {})(1, 2) == subject(1, 2) == 1 + 2 * sum(range(9000))


def test_jumps_that_settle_two_ways_stay_as_they_were() -> None:
    """Two jumps across each other: both short is consistent, and so is both long."""
    template = compile("0", "", "eval")

    def crossing(arguments: tuple[int | None, int | None]) -> list[Instruction]:
        between = 253 - BY_NAME["JUMP_BACKWARD"].caches
        return [
            Instruction("RESUME", 0),
            Instruction("JUMP_FORWARD", arguments[0], target=between + 4),
            *[Instruction("NOP") for _ in range(between)],
            Instruction("JUMP_BACKWARD", arguments[1], target=1),
            Instruction("NOP"),
            Instruction("LOAD_CONST", 0),
            Instruction("RETURN_VALUE"),
        ]

    short = encode_parts(template, crossing((None, None)))
    long = encode_parts(template, crossing((256, 257)))
    assert len(long.co_code) == len(short.co_code) + 4
    for code in (short, long):
        assert eval(code) == 0
        assert encode(decode(code)).co_code == code.co_code


def test_lines_move_with_their_instructions() -> None:
    code = compile("try:\n    1 / 0\nfinally:\n    x = (1 +\n      2)\n", "lines", "exec")
    wide = encode(padded(decode(code), 12))
    places = [i.positions for i in decode(wide).instructions if i.opname != "NOP"]
    assert places == [i.positions for i in decode(code).instructions if i.opname != "NOP"]
    assert None in places  # the cleanup blocks have no location


def test_every_kind_of_location_survives() -> None:
    template = compile("0", "", "eval").replace(co_firstlineno=10)
    wanted = [
        (10, 10, 3, 9),
        (11, 11, 100, 120),
        (12, 12, 79, 94),
        (20, 20, 0, 500),
        (5, 9, 4, 2),
        (6, 6, None, None),
        (6, 8, None, None),
        (100000, 100000, 1, 2),
        None,
        (1, 1, 1, 1),
    ]
    instructions = [Instruction("RESUME", 0, positions=wanted[0])]
    instructions += [Instruction("NOP", positions=place) for place in wanted[1:]]
    instructions += [Instruction("LOAD_CONST", 0), Instruction("RETURN_VALUE")]
    made = encode_parts(template, instructions)
    assert [i.positions for i in decode(made).instructions] == [*wanted, None, None]


def test_stack_size_is_computed() -> None:
    template = compile("0", "", "eval").replace(co_consts=(1,), co_stacksize=99)
    loads = [Instruction("LOAD_CONST", 0) for _ in range(7)]
    instructions = [
        Instruction("RESUME", 0),
        *loads,
        Instruction("BUILD_TUPLE", 7),
        Instruction("RETURN_VALUE"),
    ]
    made = encode_parts(template, instructions)
    assert made.co_stacksize == 7 and eval(made) == (1,) * 7


def test_impossible_jumps_are_refused() -> None:
    template = compile("0", "", "eval")
    for instructions, phrase in (
        ([Instruction("NOP"), Instruction("JUMP_FORWARD", target=0)], "wrong direction"),
        ([Instruction("NOP"), Instruction("JUMP_BACKWARD", target=5)], "no target"),
        ([Instruction("NOP"), Instruction("JUMP_FORWARD")], "no target"),
    ):
        try:
            encode_parts(template, instructions)
        except ValueError as error:
            assert phrase in str(error)
        else:
            raise AssertionError(f"encoded, though {phrase!r} was expected")


def test_a_range_outside_the_code_is_refused() -> None:
    unit = editable(decode(compile("x = 1", "", "exec")))
    unit.exception_table.append(ExceptionEntry(0, 100, 1, 0, False))
    try:
        encode(unit)
    except ValueError as error:
        assert "does not fit" in str(error)
    else:
        raise AssertionError("encoded a range that is not there")
