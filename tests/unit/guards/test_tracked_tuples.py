"""Check which tuples a guard program takes from the collector's list: its own, not those of the program."""

from __future__ import annotations

import gc
from types import SimpleNamespace

from stator import _core
from stator.guards.guard import Guard, Kind
from stator.guards.lower import lower
from stator.source import DictOf, Key, Local


def test_tuples_of_a_guard_program():
    was_on = gc.isenabled()
    gc.disable()
    try:
        mine = tuple([3, 4])
        holder = SimpleNamespace(n=mine, table={mine: 1})
        attributes = DictOf(Local("x", 0))
        program = lower([Guard(Key(attributes, "n"), Kind.EQUALS, mine), Guard(attributes, Kind.ABSENT, "m"),
                         Guard(Key(Key(attributes, "table"), mine), Kind.EQUALS, 1)])
        assert all(map(gc.is_tracked, [mine, *program.nodes, *program.checks]))
        made = _core.GuardProgram(program.nodes, program.checks, program.wanted, 1)
        assert gc.is_tracked(mine)
        assert [node for node in program.nodes if gc.is_tracked(node)] == [(3, 3, (mine, hash(mine)))]
        assert [check[2] for check in program.checks if gc.is_tracked(check)] == [mine]
    finally:
        (gc.enable if was_on else gc.disable)()
    assert made.check((holder,)) == -1 and made.check((SimpleNamespace(n=mine, table={}),)) >= 0
    holder.m = 1
    assert made.check((holder,)) == 1
