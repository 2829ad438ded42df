"""Declared stack effects against CPython's own, and depths along paths."""

from __future__ import annotations

import dis
from collections.abc import Callable
from typing import Any

from stator.code.decode import decode
from stator.code.opcodes import ALL_OPNAMES, BY_NAME, VERSION, Operand
from stator.code.opcodes_since_314 import SPELLINGS
from stator.code.stack_effects import EFFECTS, depths, effect, max_depth, net_effect, pops
from tests.unit.code.code_verifier import editable, encode

# What dis does not count: the value that a generator's first resumption pushes, for the POP_TOP that follows.
# 3.13 declares it.  And of 3.11: dis has PRECALL take the arguments that CALL takes.
EXPECTED_DIFFERENCES = {"RETURN_GENERATOR"} if VERSION < (3, 13) else set()
if VERSION == (3, 11):
    EXPECTED_DIFFERENCES |= {"PRECALL", "CALL"}


def test_every_effect_matches_cpython() -> None:
    different = set()
    for name, opcode in BY_NAME.items():
        for arg in [None] if opcode.operand is Operand.NONE else [0, 1, 2, 3, 4, 7, 9, 13, 259]:
            for jump in (True, False):
                if dis.stack_effect(opcode.number, arg, jump=jump) != net_effect(SPELLINGS.get(name, name), arg or 0, jump):
                    different.add(name)
    assert different == EXPECTED_DIFFERENCES
    assert BY_NAME.keys() - SPELLINGS.keys() == ALL_OPNAMES <= set(EFFECTS)


def call_after_a_loop(function: Callable[..., Any]) -> Any:
    for _ in ():
        pass
    for _ in ():
        pass
    return function(1, 2, 3, 4, 5, 6)


def test_a_loop_leaves_room_for_the_calls_after_it() -> None:
    """A frame that is too small has the arguments of a call where the frame of the callee begins."""
    def arguments(a: int, b: int, c: int, d: int, e: int, f: int) -> list[int]:
        return [a, b, c, d, e, f]

    code = call_after_a_loop.__code__
    again = encode(decode(code))
    assert again.co_stacksize == code.co_stacksize
    assert type(call_after_a_loop)(again, {})(arguments) == call_after_a_loop(arguments)


def test_counts_follow_the_operand() -> None:
    assert pops("BUILD_MAP", 3) == 6 and net_effect("BUILD_MAP", 3, False) == -5
    assert pops("UNPACK_EX", 2 | 3 << 8) == 1 and net_effect("UNPACK_EX", 2 | 3 << 8, False) == 5
    assert pops("LIST_APPEND", 4) == 5 and net_effect("LIST_APPEND", 4, False) == -1


def test_depths_along_a_branch() -> None:
    def subject(x, y):  # type: ignore[no-untyped-def]
        z = [x, y if x else -y, 3]
        return z

    unit = decode(subject.__code__)
    found = depths(unit)
    (build,) = [i for i in unit.instructions if i.opname == "BUILD_LIST"]
    assert found[build.index] == 3 and found[0] == 0
    assert max_depth(unit) == subject.__code__.co_stacksize
    assert effect(build, False) == -2


def test_handlers_start_above_what_they_keep() -> None:
    def subject(manager, xs):  # type: ignore[no-untyped-def]
        for x in xs:
            with manager:
                x()

    unit = decode(subject.__code__)
    found = depths(unit)
    for entry in unit.exception_table:
        assert found[entry.target] == entry.depth + entry.lasti + 1
    assert {entry.lasti for entry in unit.exception_table} == {True}


def test_unreached_instructions_have_no_depth() -> None:
    unit = editable(decode(compile("x = 1", "", "exec")))
    unit.instructions.append(unit.instructions[-1].copy())
    assert depths(unit)[-1] is None and depths(unit)[-2] is not None


def test_analyses_are_remembered_only_for_shared_bodies() -> None:
    code = compile("x = 1", "", "exec")
    unit: Any = decode(code)
    assert depths(unit) is depths(decode(code))
    edited = editable(unit)
    assert depths(edited) is not depths(edited)
