"""Every opcode of the running Python is accounted for: handled, declined with a code, or only ever decoded."""

from __future__ import annotations

from stator.breaks import REGISTRY
from stator.code.opcodes import ALL_OPNAMES, DECODED_OPNAMES, INTRINSICS_1, INTRINSICS_2
from stator.interp.machine import DECLINED, HANDLERS
from stator.interp.opcodes.intrinsic_opcodes import BINARY, UNARY
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
