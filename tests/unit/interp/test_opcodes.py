"""Every opcode of the running Python is accounted for: handled, declined with a code, or only ever decoded."""

from __future__ import annotations

import types
from typing import Any

import pytest
import torch

import stator
from stator.breaks import REGISTRY
from stator.code.opcodes import ALL_OPNAMES, DECODED_OPNAMES, INTRINSICS_1, INTRINSICS_2
from stator.code.stack_effects import effect
from stator.interp.machine import DECLINED, HANDLERS
from stator.interp.opcodes.opcodes_since_312 import BINARY, UNARY
from stator.interp.vm import VM


def test_the_three_groups_add_up() -> None:
    assert VM is not None  # importing it registers every handler
    handled = set(HANDLERS) - set(DECLINED)
    decode_only = ALL_OPNAMES - DECODED_OPNAMES
    assert handled | set(DECLINED) | decode_only == set(ALL_OPNAMES)
    assert not handled & decode_only and not set(DECLINED) & decode_only
    assert len(handled) + len(DECLINED) + len(decode_only) == len(ALL_OPNAMES)


def test_few_opcodes_are_declined_and_each_has_a_registered_code() -> None:
    # Neither is compiled into a function; 3.12 has intrinsics in their place, which break too.
    assert set(DECLINED) == {"IMPORT_STAR", "PRINT_EXPR"} & ALL_OPNAMES
    assert set(DECLINED.values()) <= set(REGISTRY)


def test_no_handler_is_of_another_version() -> None:
    assert set(HANDLERS) <= set(ALL_OPNAMES)


def test_every_intrinsic_has_a_handler() -> None:
    assert set(INTRINSICS_1) - {"INTRINSIC_1_INVALID"} <= set(UNARY)
    assert set(INTRINSICS_2) - {"INTRINSIC_2_INVALID"} <= set(BINARY)


def watch_stack(monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, int], list[str]]:
    """Compare the stack after each instruction that falls through in its own frame with the declared effect."""
    seen: dict[str, int] = {}
    wrong: list[str] = []

    def watched(opname: str, handler: Any) -> Any:
        def run(vm: Any, frame: Any, instr: Any) -> None:
            before = len(frame.stack)
            handler(vm, frame, instr)
            if vm.frame is frame and frame.ip == instr.index + 1:
                seen[opname] = seen.get(opname, 0) + 1
                if len(frame.stack) - before != effect(instr, False):
                    wrong.append(f"{opname} {instr.arg}: {len(frame.stack) - before}, not {effect(instr, False)}")
        return run

    for name, handler in list(HANDLERS.items()):
        monkeypatch.setitem(HANDLERS, name, watched(name, handler))
    return seen, wrong


def many_opcodes(x: torch.Tensor, n: int, items: dict[str, Any]) -> Any:
    first, *rest = [n, n + 1, n * 2]
    text = f"{n!r:>4}" + str(first)
    made = {**items, "n": n, text: [*rest]}
    chosen = [value for value in rest if value > 1 and value is not None]
    pairs = {key: index for index, key in enumerate(sorted(made))}
    names = {letter for letter in "abc"}
    try:
        made["missing"]
    except KeyError as error:
        chosen.append(len(error.args))
    with torch.no_grad():
        x = x[1:] * -n
    del made["n"]
    match items:
        case {"k": [a, b]}:
            x = x + a * b
    return x, chosen, pairs, len(names), not n, (lambda *args, **kwargs: (args, kwargs))(*rest, **{"k": n})


def test_handlers_do_to_the_stack_what_is_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, wrong = watch_stack(monkeypatch)
    fresh = types.FunctionType(many_opcodes.__code__.replace(co_name="fresh"), globals())
    stator.compile(fresh, backend="eager", fullgraph=True)(torch.ones(3), 2, {"k": [1, 2]})
    assert not wrong
    assert len(seen) > 30 and sum(seen.values()) > 150


def test_a_wrong_handler_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def one_too_many(vm: Any, frame: Any, instr: Any, handler: Any = HANDLERS["COMPARE_OP"]) -> None:
        handler(vm, frame, instr)
        frame.stack.insert(0, None)

    monkeypatch.setitem(HANDLERS, "COMPARE_OP", one_too_many)
    seen, wrong = watch_stack(monkeypatch)
    fresh = types.FunctionType((lambda x, n: x if n > 1 else -x).__code__.replace(co_name="fresh"), globals())
    stator.compile(fresh, backend="eager")(torch.ones(3), 2)
    assert wrong and wrong[0].startswith("COMPARE_OP")
