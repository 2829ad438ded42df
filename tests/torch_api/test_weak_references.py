"""Weak references to tensors inside captured code: alive as long as eager's, and collections that are told of deaths."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator
from stator import events

HELD: list[Any] = []


class Thing:
    """Something that can be referred to weakly."""


def to_an_argument(x: Any, y: Any) -> Any:
    reference = weakref.ref(x)
    return reference() * y, reference() is x, reference is weakref.ref(x), hash(reference) == hash(x)


def to_what_is_made_and_kept(x: Any, y: Any) -> Any:
    made = x + 1
    reference = weakref.ref(made)
    return reference() * y, reference, made


def given_back(x: Any, y: Any) -> Any:
    return weakref.ref(x), y + 1


def keys_of_a_dict(x: Any, y: Any) -> Any:
    table: Any = weakref.WeakKeyDictionary()
    table[x] = 3
    return len(table), list(table.values()), len(weakref.WeakSet([x])), y + 1


def to_what_is_made_and_dropped(x: Any, y: Any) -> Any:
    made = x + 1
    reference = weakref.ref(made)
    del made
    return reference() is None, y * 2


def to_what_nobody_holds(x: Any, y: Any) -> Any:
    return weakref.ref(x + 1)() is None, y * 2


def assigned_again(x: Any, y: Any) -> Any:
    made = x + 1
    reference = weakref.ref(made)
    made = made + 1
    return reference() is None, made


def value_that_nobody_holds(x: Any, y: Any) -> Any:
    table: Any = weakref.WeakValueDictionary()
    table["x"] = x + 1
    return len(table), y + 1


def let_go(x: Any, y: Any) -> Any:
    table: Any = weakref.WeakKeyDictionary()
    table[HELD[0]] = 1
    HELD.pop()
    return len(table), y + 1


def let_go_and_asked(x: Any, y: Any) -> Any:
    reference = weakref.ref(HELD[0])
    HELD[0] = None
    return reference() is None, y + 1


def told(x: Any, y: Any) -> Any:
    log: list[Any] = []
    made = x + 1
    reference = weakref.ref(made, log.append)
    del made
    return len(log), reference() is None, y + 1


WHOLE = [to_an_argument, to_what_is_made_and_kept, given_back, keys_of_a_dict]
BROKEN = [to_what_is_made_and_dropped, to_what_nobody_holds, assigned_again, value_that_nobody_holds, let_go,
          let_go_and_asked, told]


def shown(value: Any) -> Any:
    if isinstance(value, weakref.ref):
        return "reference", shown(value())
    return [shown(part) for part in value] if isinstance(value, tuple) else str(value)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("held", [Thing, lambda: torch.ones(3)], ids=["object", "tensor"])
@pytest.mark.parametrize("program", WHOLE + BROKEN, ids=lambda program: program.__name__)
def test_alive_as_long_as_in_eager(program: Any, held: Callable[[], Any], backend: str) -> None:
    codes: set[str] = set()

    def note(event: object) -> None:
        if isinstance(event, events.GraphBreak):
            codes.add(event.code)

    outcomes = []
    stop = events.subscribe(note)
    try:
        for function in (program, stator.compile(program, backend=backend)):
            seen = []
            for i in range(3):
                HELD[:] = [held()]
                x, y = torch.ones(2) + i, torch.ones(2) * i
                result = function(x, y)
                seen.append((shown(result), result[0]() is x if program is given_back else None))
                del result
            outcomes.append(seen)
    finally:
        stop()
    assert outcomes[1] == outcomes[0]
    assert codes == (set() if program in WHOLE else {"SB019"})


def referred_to_after_a_break(thing: Any) -> Any:
    stator.graph_break()
    return weakref.ref(thing)


def kept_by_a_variable_of_the_caller(x: Any) -> Any:
    thing = Thing()
    reference = referred_to_after_a_break(thing)
    stator.graph_break()
    return x + 1, reference() is None


def hook_of_a_module_made_inside(x: Any) -> Any:
    module = torch.nn.Sigmoid()
    module.register_backward_hook(lambda module, grads, _: tuple(grad * 2 for grad in grads))
    module(x).backward(torch.ones(2))
    return x.grad.clone(), True


@pytest.mark.filterwarnings("ignore:Using a non-full backward hook")
@pytest.mark.parametrize("program", [kept_by_a_variable_of_the_caller, hook_of_a_module_made_inside],
                         ids=lambda program: program.__name__)
def test_a_variable_of_the_caller_keeps_what_its_callee_refers_to(program: Any) -> None:
    compiled = stator.compile(program, backend="eager")
    for i in range(3):
        given = [torch.full((2,), float(i)).requires_grad_() for _ in range(2)]
        assert str(compiled(given[0])) == str(program(given[1]))
