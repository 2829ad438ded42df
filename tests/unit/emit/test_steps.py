"""One instruction run by itself: what it pushes, where control goes on, and what it raises, as CPython does it."""

from __future__ import annotations

import builtins
import contextlib
import operator
import types
from collections.abc import Callable
from typing import Any

import pytest

from stator.code.instruction import Instruction
from stator.code.opcodes import INTRINSICS_1, LOOP_END_SKIP, NULL_LAST
from stator.emit.resume.native_opcodes import _PLANNERS, Step, plan_step
from stator.interp.frame import NULL

HERE, THERE = 5, 50
NAMES: dict[str, Any] = {"known": 7}


def planned(opname: str, arg: int = 0, argval: Any = None, flag: bool = False, kwnames: tuple[str, ...] = ()) -> Step:
    step = plan_step(Instruction(opname, arg, argval, HERE, target=THERE, flag=flag), kwnames, NAMES)
    assert step is not None
    return step


def run(step: Step, *operands: Any) -> tuple[int, list[Any]]:
    """Where control goes, and what is on the stack then; the step takes as many operands as it says."""
    assert step.pops == len(operands)
    way, pushed = step.run(list(operands), lambda function, *args, **kwargs: function(*args, **kwargs))
    assert len(step.exits[way].pushes) == len(pushed)
    return step.exits[way].index, pushed


def callee(function: Any) -> tuple[Any, Any]:
    return (function, NULL) if NULL_LAST else (NULL, function)


VALUES: list[tuple[str, dict[str, Any], tuple[Any, ...], Any]] = [
    ("BINARY_OP", {"argval": "-"}, (7, 3), 4),
    ("COMPARE_OP", {"argval": "<"}, (7, 3), False),
    ("CONTAINS_OP", {"arg": 0}, (3, [3]), True),
    ("CONTAINS_OP", {"arg": 1}, (3, [3]), False),
    ("UNARY_NEGATIVE", {}, (7,), -7),
    ("UNARY_INVERT", {}, (7,), ~7),
    ("UNARY_NOT", {}, (7,), False),
    ("BINARY_SUBSCR", {}, ([4, 5], 1), 5),
    ("BINARY_SLICE", {}, ([4, 5, 6], 1, None), [5, 6]),
    ("CALL", {"arg": 2}, (*callee(divmod), 7, 2), (3, 1)),
    ("CALL", {"arg": 2, "kwnames": ("base",)}, (*callee(int), "11", 2), 3),
    ("CALL", {"arg": 1}, (operator.add, 2, 3), 5),
    ("CALL_KW", {"arg": 2}, (*callee(int), "11", 2, ("base",)), 3),
    ("CALL_FUNCTION_EX", {"arg": 0}, (*callee(divmod), (7, 2)), (3, 1)),
    ("CALL_FUNCTION_EX", {"arg": 1}, (*callee(int), ("11",), {"base": 2}), 3),
    ("LOAD_ATTR", {"argval": "real"}, (3 + 4j,), 3.0),
    ("LOAD_GLOBAL", {"argval": "known"}, (), 7),
    ("LOAD_GLOBAL", {"argval": "len"}, (), len),
    ("LOAD_SUPER_ATTR", {"arg": 2, "argval": "__thisclass__"}, (super, bool, True), bool),
    ("CONVERT_VALUE", {"arg": 2}, ("a",), "'a'"),
    ("TO_BOOL", {}, ([],), False),
    ("FORMAT_VALUE", {"arg": 2}, ("a",), "'a'"),
    ("FORMAT_VALUE", {"arg": 4}, (3, "03d"), "003"),
    ("FORMAT_WITH_SPEC", {}, (3, "03d"), "003"),
    ("IMPORT_NAME", {"argval": "operator"}, (0, None), operator),
    ("BUILD_SET", {"arg": 2}, (1, 2), {1, 2}),
    ("BUILD_MAP", {"arg": 2}, (1, 2, 3, 4), {1: 2, 3: 4}),
]
if INTRINSICS_1:  # 3.11 has none
    VALUES.append(("CALL_INTRINSIC_1", {"argval": "INTRINSIC_LIST_TO_TUPLE"}, ([1, 2],), (1, 2)))


@pytest.mark.parametrize(("opname", "options", "operands", "expected"), VALUES, ids=lambda v: v if type(v) is str else None)
def test_a_value_in_place_of_the_operands(opname: str, options: Any, operands: Any, expected: Any) -> None:
    where, pushed = run(planned(opname, **options), *operands)
    assert (where, pushed) == (HERE + 1, [expected])
    assert type(pushed[0]) is type(expected)


def changed(make: Callable[[], Any], opname: str, options: Any, operands: Callable[[Any], tuple[Any, ...]]) -> Any:
    subject = make()
    assert run(planned(opname, **options), *operands(subject)) == (HERE + 1, [])
    return subject


def test_statements() -> None:
    space = types.SimpleNamespace
    assert changed(space, "STORE_ATTR", {"argval": "n"}, lambda s: (3, s)) == space(n=3)
    assert changed(lambda: space(n=3), "DELETE_ATTR", {"argval": "n"}, lambda s: (s,)) == space()
    assert changed(dict, "STORE_SUBSCR", {}, lambda s: (3, s, "k")) == {"k": 3}
    assert changed(lambda: {"k": 3}, "DELETE_SUBSCR", {}, lambda s: (s, "k")) == {}
    assert changed(lambda: [1, 2, 3], "STORE_SLICE", {}, lambda s: ([9], s, 0, 2)) == [9, 3]


@pytest.mark.parametrize("opname", [name for name in _PLANNERS if "JUMP" in name])
@pytest.mark.parametrize("value", [[], [1]], ids=["empty", "full"])
def test_jumps(opname: str, value: Any) -> None:
    jumps = bool(value) is ("IF_TRUE" in opname)
    kept = [value] if jumps and "OR_POP" in opname else []
    assert run(planned(opname), value) == (THERE if jumps else HERE + 1, kept)


def test_loops_and_unpacking() -> None:
    items = iter([3])
    assert run(planned("FOR_ITER"), items) == (HERE + 1, [items, 3])
    assert run(planned("FOR_ITER"), items) == (THERE + LOOP_END_SKIP, [])
    assert run(planned("UNPACK_SEQUENCE", 2), "ab") == (HERE + 1, ["b", "a"])
    assert run(planned("UNPACK_EX", 1 | 1 << 8), "abcd") == (HERE + 1, ["d", ["b", "c"], "a"])
    with pytest.raises(ValueError, match="not enough values to unpack"):
        run(planned("UNPACK_SEQUENCE", 2), "a")


def test_methods_leave_room_for_a_receiver() -> None:
    for opname, flag in (("LOAD_METHOD", False), ("LOAD_ATTR", True)):
        step = planned(opname, argval="upper", flag=flag)
        assert len(step.exits[0].pushes) == 2
        assert step.run(["ab"], lambda function, *args: function(*args))[1][0]() == "AB"


def test_containers_further_down() -> None:
    for opname, make, value, expected in (
        ("LIST_EXTEND", list, (1, 2), [1, 2]), ("LIST_APPEND", list, 3, [3]), ("SET_ADD", set, 3, {3}),
        ("SET_UPDATE", set, (1, 2), {1, 2}), ("DICT_UPDATE", dict, {1: 2}, {1: 2}),
    ):  # fmt: skip
        subject, between = make(), object()
        assert run(planned(opname, 2), subject, between, value) == (HERE + 1, [subject, between])
        assert subject == expected
    table: dict[str, int] = {}
    assert run(planned("MAP_ADD", 1), table, "k", 3) == (HERE + 1, [table]) and table == {"k": 3}


@pytest.mark.parametrize(("opname", "subject", "display"), [
    ("LIST_EXTEND", [], lambda value: [*value]), ("DICT_UPDATE", {}, lambda value: {**value}),
    ("SET_UPDATE", set(), lambda value: {*value}),
])  # fmt: skip
@pytest.mark.parametrize("value", [5, None, [(1, 2)], "ab"], ids=repr)
def test_what_a_display_refuses(opname: str, subject: Any, display: Any, value: Any) -> None:
    """`{**[(1, 2)]}` is an error, though a dict's update would take it."""
    outcome = []
    for attempt in (lambda: display(value), lambda: run(planned(opname, 1), type(subject)(), value)[1][0]):
        try:
            outcome.append(attempt())
        except TypeError as error:
            outcome.append(str(error))
    assert outcome[0] == outcome[1]


def test_blocks_imports_and_errors() -> None:
    manager = contextlib.nullcontext(3)
    where, (leave, entered) = run(planned("BEFORE_WITH"), manager)
    assert (where, entered, leave.__self__) == (HERE + 1, 3, manager)
    with pytest.raises(TypeError, match="context manager protocol"):
        run(planned("BEFORE_WITH"), 3)
    assert run(planned("IMPORT_FROM", argval="add"), operator) == (HERE + 1, [operator, operator.add])
    error, cause = ValueError("a"), KeyError("b")
    with pytest.raises(ValueError, match="a") as caught:
        run(planned("RAISE_VARARGS", 2), error, cause)
    assert caught.value is error and error.__cause__ is cause
    with pytest.raises(NameError, match="name 'nobody' is not defined"):
        run(planned("LOAD_GLOBAL", argval="nobody"))
    assert not hasattr(builtins, "nobody")
