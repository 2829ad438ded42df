"""The meaning of decoded instructions."""

from __future__ import annotations

import gc
from types import CodeType
from typing import Any

from stator import _hook
from stator.code.decode import MalformedCode, _bodies, decode
from stator.code.encode import opcode_of
from stator.code.instruction import Instruction
from stator.code.opcodes import ALL_OPNAMES, BY_NAME, DECODED_OPNAMES, JUMPS, VERSION
from tests.unit.code.code_verifier import editable


def named(function: Any, *opnames: str) -> list[Instruction]:
    return [i for i in decode(function.__code__).instructions if i.opname in opnames]


def expect_malformed(code: CodeType, phrase: str) -> None:
    try:
        decode(code)
    except MalformedCode as error:
        assert phrase in str(error)
    else:
        raise AssertionError(f"decoded, though {phrase!r} was expected")


def test_constants_and_names_are_resolved() -> None:
    def subject(x):  # type: ignore[no-untyped-def]
        return len(x.shape) + 12345

    assert 12345 in [i.argval for i in named(subject, "LOAD_CONST")]
    (load,) = named(subject, "LOAD_GLOBAL")
    assert load.argval == "len" and load.flag
    (attribute,) = named(subject, "LOAD_ATTR")
    assert attribute.argval == "shape" and not attribute.flag


def test_a_plain_global_pushes_no_null() -> None:
    (load,) = named(lambda: some_global, "LOAD_GLOBAL")  # noqa: F821
    assert load.argval == "some_global" and not load.flag


def test_method_loads() -> None:
    (load,) = named(lambda x: x.sum(1), "LOAD_METHOD", "LOAD_ATTR")
    assert load.argval == "sum"
    assert (load.opname, load.flag) == (("LOAD_METHOD", False) if VERSION == (3, 11) else ("LOAD_ATTR", True))


def test_keyword_names() -> None:
    if VERSION >= (3, 13):
        (names,) = [
            i.argval for i in named(lambda f: f(a=1, b=2), "LOAD_CONST") if isinstance(i.argval, tuple)
        ]
    else:
        (names,) = [i.argval for i in named(lambda f: f(a=1, b=2), "KW_NAMES")]
    assert names == ("a", "b")


def test_operators() -> None:
    symbols = ["<", "<=", "==", "!=", ">", ">="]
    for symbol in symbols:
        (compare,) = named(eval(f"lambda x, y: x {symbol} y"), "COMPARE_OP")
        assert compare.argval == symbol and not compare.flag
    for symbol in ["+", "-", "*", "/", "//", "%", "@", "**", "<<", ">>", "&", "|", "^"]:
        (binary,) = named(eval(f"lambda x, y: x {symbol} y"), "BINARY_OP")
        assert binary.argval == symbol
    unit = decode(compile("x @= y", "", "exec"))
    assert [i.argval for i in unit.instructions if i.opname == "BINARY_OP"] == ["@="]


def test_coerced_comparison_keeps_its_flag() -> None:
    (compare,) = named(lambda x: 1 if x < 2 else 3, "COMPARE_OP")
    assert compare.argval == "<" and compare.flag == (VERSION >= (3, 13))


def test_inverted_membership() -> None:
    (contains,) = named(lambda x, y: x not in y, "CONTAINS_OP")
    (identity,) = named(lambda x, y: x is y, "IS_OP")
    assert contains.flag and not identity.flag


def test_slots_follow_localsplus_order() -> None:
    free = 1

    def subject(plain, boxed):  # type: ignore[no-untyped-def]
        own = plain
        return lambda: boxed + own + free

    unit = decode(subject.__code__)
    assert unit.local_names == ("plain", "boxed", "own", "free")
    assert unit.cell_slots == (1, 2) and unit.free_slots == (3,) and unit.nlocalsplus == 4
    (store,) = [i for i in unit.instructions if i.opname == "STORE_DEREF"]
    assert unit.local_names[store.argval] == "own"
    # Every slot the code touches by name is the slot CPython means.
    for slot, name in enumerate(unit.local_names):
        assert subject.__code__._varname_from_oparg(slot) == name  # type: ignore[attr-defined]


def test_superinstructions_name_two_slots() -> None:
    pairs = [i.argval for i in named(lambda x, y: y + x, "LOAD_FAST_LOAD_FAST")]
    assert pairs == ([(1, 0)] if VERSION >= (3, 13) else [])


def test_super_attribute_flags() -> None:
    class Child(dict):  # type: ignore[type-arg]
        def method(self):  # type: ignore[no-untyped-def]
            return super().keys()

        def value(self):  # type: ignore[no-untyped-def]
            return super(Child, self).keys

    if VERSION == (3, 11):
        assert [i.argval for i in named(Child.method, "LOAD_METHOD")] == ["keys"]
    else:
        (method,) = named(Child.method, "LOAD_SUPER_ATTR")
        (value,) = named(Child.value, "LOAD_SUPER_ATTR")
        assert method.argval == value.argval == "keys"
        assert method.flag and not method.arg & 2
        assert not value.flag and value.arg & 2


def test_jumps_know_their_target() -> None:
    def subject(xs):  # type: ignore[no-untyped-def]
        total = 0
        for x in xs:
            if x is None:
                continue
            total += x
        return total

    unit = decode(subject.__code__)
    jumps = [i for i in unit.instructions if i.opname in JUMPS]
    (loop,) = [i for i in jumps if i.opname == "FOR_ITER"]
    backward = [i for i in jumps if i.opname.startswith("JUMP_BACKWARD")]
    assert backward and all(unit.instructions[i.target] is loop for i in backward if i.target is not None)
    assert loop.target is not None and loop.target > loop.index
    assert all(i.target is None for i in unit.instructions if i.opname not in JUMPS)
    assert [i.index for i in unit.instructions] == list(range(len(unit.instructions)))


def test_exception_entries_use_indexes() -> None:
    def subject(x):  # type: ignore[no-untyped-def]
        try:
            return x.first
        except AttributeError:
            return None

    unit = decode(subject.__code__)
    (load,) = [i for i in unit.instructions if i.opname == "LOAD_ATTR"]
    assert load.handler in unit.exception_table
    assert load.handler is not None and load.handler.start <= load.index < load.handler.end
    assert unit.instructions[load.handler.target].opname == "PUSH_EXC_INFO"
    assert [i.handler for i in unit.instructions] == unit.handlers()


def test_every_offset_of_an_instruction_finds_it() -> None:
    lines = "\n".join(f"    x = x.attribute{n}(x, {n})" for n in range(300))
    namespace: dict[str, Any] = {}
    exec(f"def subject(x):\n{lines}\n    return x", namespace)
    code = namespace["subject"].__code__
    unit = decode(code)
    assert any(i.arg is not None and i.arg > 255 for i in unit.instructions)
    assert sorted(unit.index_of_offset) == list(range(0, len(code.co_code) + 1, 2))
    for instruction in unit.instructions:
        assert code.co_code[instruction.offset] == opcode_of(instruction).number
        assert unit.index_of_offset[instruction.offset] == instruction.index


def test_bodies_are_shared_and_forgotten() -> None:
    first, second = compile("x = 1", "same", "exec"), compile("x = 1", "same", "exec")
    assert first == second
    assert decode(first).instructions is decode(first).instructions
    assert decode(first).instructions is not decode(second).instructions
    assert decode(first).code is first
    key = id(first)
    assert key in _bodies
    del first
    gc.collect()
    assert key not in _bodies


def test_a_copy_is_independent() -> None:
    unit = decode(compile("x = 1", "", "exec"))
    edited = editable(unit)
    edited.instructions[0].opname = "NOP"
    edited.instructions.pop()
    assert unit.instructions[0].opname == "RESUME" and len(unit.instructions) > len(edited.instructions)


def test_malformed_code_is_refused() -> None:
    code = compile("x = y", "", "exec")
    store = next(i for i in decode(code).instructions if i.opname == "STORE_NAME")
    bad = bytearray(code.co_code)
    bad[store.offset + 1] = 200
    expect_malformed(code.replace(co_code=bytes(bad)), "out of range")
    jump = bytes((BY_NAME["JUMP_FORWARD"].number, 250))
    expect_malformed(code.replace(co_code=code.co_code + jump), "leaves the code")


def test_opcode_sets() -> None:
    assert DECODED_OPNAMES < ALL_OPNAMES
    assert not [name for name in ALL_OPNAMES if name.startswith("INSTRUMENTED_") or name == "SETUP_FINALLY"]
    assert {"RESUME", "LOAD_FAST", "CALL", "RETURN_VALUE"} <= DECODED_OPNAMES
    assert not {"CACHE", "EXTENDED_ARG"} & DECODED_OPNAMES


def test_the_collector_does_not_visit_instructions() -> None:
    def loop(x: int) -> list[int]:
        with open(__file__) as file:
            return [x + 1 for _ in file]

    unit = decode(loop.__code__)
    program = _hook.with_handlers(unit.instructions, {each.opname: print for each in unit.instructions})
    assert [(print, each) for each in unit.instructions] == program
    assert not any(map(gc.is_tracked, (*unit.instructions, *program)))
    try:
        _hook.with_handlers(unit.instructions, {})
    except KeyError:
        return
    raise AssertionError("an instruction without a handler was taken")
