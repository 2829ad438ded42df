"""What a graph asserts on the program's behalf, and what the program raises where that does not hold.

    1 / t.item()   ->  the graph asserts that the divisor is not zero; ZeroDivisionError where it is
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import expect_true
from torch.utils._sympy.symbol import SymT, symbol_is_type

from stator.interp.services import VM
from stator.interp.tracebacks import Place, add_place
from stator.shapes.symbolic_values import is_unbacked


@dataclass(frozen=True)
class Assertion:
    """What the program raises when the graph's assertion fails, whose message holds `text`."""

    text: str
    cls: type[BaseException] | None  # None: the program itself has to raise it, as only it knows what to say
    args: tuple[Any, ...]
    places: tuple[Place, ...] = ()  # the frames that it leaves, innermost first
    symbols: frozenset[Any] = frozenset()

    def exception(self) -> BaseException:
        assert self.cls is not None, "such a graph writes nothing, and the call is made again"
        made = self.cls(*self.args)
        for place in self.places:
            add_place(made, place)
        return made


def assert_in_graph(vm: VM, condition: Any) -> bool:
    """Assert a symbolic condition as the graph runs; False where it is known not to hold.

    Torch inserts the assertions of a ShapeEnv only where each symbol has a node, and drops those of a float that
    becomes an int: a condition on anything but unbacked ints has an assertion of its own.
    """
    symbols = condition.node.expr.free_symbols
    of_floats = any(symbol_is_type(symbol, SymT.UNBACKED_FLOAT) for symbol in symbols)
    if of_floats or not all(symbol_is_type(symbol, SymT.UNBACKED_INT) for symbol in symbols) and is_unbacked(condition):
        text = f"Runtime assertion failed for expression {condition.node.expr}"
        vm.recorder.record("call_function", torch.ops.aten._assert_scalar.default, (condition, text), {}, None)
    return of_floats or expect_true(condition)


def promise_number(vm: VM, condition: Any, error: BaseException, places: tuple[Place, ...]) -> bool:
    """Assert a symbolic condition as the graph runs, where the program raises `error`; False: known not to hold.

    Torch merges assertions about one symbol: which of them fails first, the graph does not tell.
    """
    recorder, expression = vm.recorder, condition.node.expr
    free = frozenset(expression.free_symbols)
    alone = all(free.isdisjoint(each.symbols) for each in vm.residual.assertions)
    vm.residual.assertions.append(Assertion(f"expression {expression}", type(error), error.args, places, free))
    before = recorder.unexplained_asserts()
    holds = assert_in_graph(vm, condition)
    if alone:
        recorder.scope.explained_asserts += recorder.unexplained_asserts() - before
    return holds


def as_program_exception(error: RuntimeError, assertions: tuple[Assertion, ...]) -> BaseException:
    """What the program would have raised where the graph raised `error`."""
    text = str(error)
    for assertion in assertions:
        at = text.find(assertion.text)
        if at >= 0 and not text[at + len(assertion.text):][:1].isalnum():
            return assertion.exception()
    if text.startswith("Runtime assertion failed for expression"):  # its expression was simplified meanwhile
        return assertions[0].exception()
    return error
