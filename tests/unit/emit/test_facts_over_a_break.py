"""The native instruction of a break may change any fact that the code behind it relies on: each is checked again.

In: loops whose disabled callee changes one fact in its third turn.  Out: the outcomes of eager, call by call; and
differences where the guards of the resume points are taken out.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from stator.capture import stages
from stator.guards.guard import Kind
from tests.comparison import (
    Programs,
    Report,
    Surroundings,
    World,
    compare_worlds,
    require_same,
    stator_compiler,
)

X = torch.tensor([[1.0, -2.0], [3.0, 4.0]])
SCALE = 2.0
scene = Programs()
Scene = tuple[Callable[..., Any], Callable[[], Any]]  # the program, and a reader of its state
TURNS, CHANGED = 6, 3  # turns of each loop; the one in which the callee changes something


def no_state() -> None:
    return None


def looped(turn: Callable[[Any], Any], change: Callable[..., Any]) -> Callable[[Any], Any]:
    """A loop with one captured operation and one break a turn."""

    @torch.compiler.disable
    def meddle(k: int, x: Any) -> None:
        if k == CHANGED:
            change(x)

    def program(x: Any) -> Any:
        for k in range(TURNS):
            x = turn(x)
            meddle(k, x)
        return x

    return program


def scaled(value: Any) -> None:
    global SCALE
    SCALE = value


@scene
def a_global() -> Scene:
    scaled(2.0)
    return looped(lambda x: x * SCALE, lambda x: scaled(SCALE + 1)), lambda: SCALE


@scene
def a_global_of_another_type() -> Scene:
    scaled(2.0)
    return looped(lambda x: x * SCALE, lambda x: scaled(torch.ones(2))), lambda: type(SCALE)


@scene
def a_builtin_name() -> Scene:
    globals().pop("abs", None)

    def change(x: Any) -> None:
        globals()["abs"] = torch.neg

    return looped(lambda x: abs(x) + 1, change), lambda: globals().pop("abs", None)


@scene
def a_cell() -> Scene:
    factor = 2.0

    def change(x: Any) -> None:
        nonlocal factor
        factor += 1

    return looped(lambda x: x * factor, change), lambda: factor


@scene
def an_attribute() -> Scene:
    holder = SimpleNamespace(n=2)

    def change(x: Any) -> None:
        holder.n += 1

    return looped(lambda x: x * holder.n, change), lambda: holder.n


@scene
def a_class() -> Scene:
    class First:
        def of(self, x: Any) -> Any:
            return x + 1

    class Second(First):
        def of(self, x: Any) -> Any:
            return x * 2

    holder = First()

    def change(x: Any) -> None:
        holder.__class__ = Second

    return looped(lambda x: holder.of(x), change), lambda: type(holder).__name__


@scene
def a_method() -> Scene:
    class Layer:
        def of(self, x: Any) -> Any:
            return x + 1

    def change(x: Any) -> None:
        Layer.of = lambda self, x: x * 2  # type: ignore[method-assign]

    layer = Layer()
    return looped(lambda x: layer.of(x), change), no_state


@scene
def an_item() -> Scene:
    items = [1.0, 2.0]

    def change(x: Any) -> None:
        items[1] += 1

    return looped(lambda x: x * items[1], change), lambda: items


@scene
def a_length() -> Scene:
    items = [1.0]
    return looped(lambda x: x + len(items), lambda x: items.append(3.0)), lambda: items


@scene
def a_key() -> Scene:
    items: dict[str, float] = {}
    return looped(lambda x: x + items.get("n", 1.0), lambda x: items.update(n=5.0)), lambda: items


@scene
def a_weak_reference() -> Scene:
    class Owner:
        pass

    holder = SimpleNamespace(n=2, owner=Owner())
    holder.watch = weakref.ref(holder.owner, lambda _: setattr(holder, "n", 5))

    def change(x: Any) -> None:
        holder.owner = None

    return looped(lambda x: x * holder.n, change), lambda: holder.n


@scene
def requires_grad() -> Scene:
    return looped(lambda x: x.detach() * 2 if x.requires_grad else x + 1, lambda x: x.requires_grad_()), no_state


@scene
def the_size_of_a_tensor() -> Scene:
    return looped(lambda x: x + x.shape[0], lambda x: x.resize_(1, 2)), no_state


@scene
def the_strides_of_a_tensor() -> Scene:
    return looped(lambda x: x + x.stride()[0], lambda x: x.t_()), no_state


@scene
def the_dtype_of_a_tensor() -> Scene:
    def change(x: Any) -> None:
        x.data = x.data.double()

    return looped(lambda x: x * (2 if x.dtype is torch.float32 else 3), change), no_state


@scene
def an_attribute_of_a_tensor() -> Scene:
    weight = torch.ones(2)
    weight.gain = 2.0  # type: ignore[attr-defined]

    def change(x: Any) -> None:
        weight.gain = 3.0  # type: ignore[attr-defined]

    return looped(lambda x: x * weight.gain, change), no_state


@scene
def memory_of_another_tensor() -> Scene:
    holder = SimpleNamespace(a=torch.ones(2, 2), b=torch.ones(2, 2))

    def turn(x: Any) -> Any:
        holder.a.add_(1)
        return x + holder.b + (holder.a is holder.b)

    def change(x: Any) -> None:
        holder.b = holder.a  # two names of one tensor from here on

    return looped(turn, change), lambda: (holder.a, holder.b)


@scene
def grad_mode() -> Scene:
    weight = torch.ones(2, requires_grad=True)

    def turn(x: Any) -> Any:
        return x.detach() + weight + torch.is_grad_enabled()

    return looped(turn, lambda x: torch.set_grad_enabled(False)), no_state


@scene
def the_default_dtype() -> Scene:
    def turn(x: Any) -> Any:
        return x + torch.ones(2) + (torch.get_default_dtype() is torch.float64)

    return looped(turn, lambda x: torch.set_default_dtype(torch.float64)), no_state


@scene
def autocast() -> Scene:
    def turn(x: Any) -> Any:
        return (x @ x) / 4 + torch.is_autocast_enabled("cpu")

    return looped(turn, lambda x: torch.set_autocast_enabled("cpu", True)), no_state


@scene
def a_tracing_function() -> Scene:
    return looped(lambda x: x + 1, lambda x: sys.settrace(lambda frame, event, arg: None)), no_state


@scene
def another_kept_local() -> Scene:
    @torch.compiler.disable
    def meddle(k: int, kept: list[Any]) -> None:
        if k == CHANGED:
            kept.clear()

    def program(x: Any) -> Any:
        grown: list[Any] = []
        for k in range(TURNS):
            grown.append(x * k)
            meddle(k, grown)
            x = x + len(grown)
        return x, grown

    return program, no_state


def steps_over(items: Callable[[], Any], change: Callable[[Any, Any], None]) -> Scene:
    """A loop over an iterator that the callee reaches."""

    @torch.compiler.disable
    def meddle(k: Any, source: Any, iterator: Any) -> None:
        if k == CHANGED:
            change(source, iterator)

    def program(x: Any) -> Any:
        source = items()
        iterator = iter(source)
        for k in iterator:
            x = x * 2 + k
            meddle(k, source, iterator)
        return x

    return program, no_state


ITERATED = Programs()


@ITERATED
def items_taken_from_a_range() -> Scene:
    return steps_over(lambda: range(8), lambda source, iterator: (next(iterator), next(iterator)))


@ITERATED
def a_range_taken_to_its_end() -> Scene:
    return steps_over(lambda: range(8), lambda source, iterator: list(iterator))


@ITERATED
def a_list_that_grows() -> Scene:
    return steps_over(lambda: [1, 2, 3, 4], lambda source, iterator: source.extend([5, 6]))


@ITERATED
def a_list_that_is_cleared() -> Scene:
    return steps_over(lambda: [1, 2, 3, 4], lambda source, iterator: source.clear())


@ITERATED
def an_item_to_come() -> Scene:
    return steps_over(lambda: [1, 2, 3, 4, 5], lambda source, iterator: source.__setitem__(4, 50))


@ITERATED
def a_position_set_back() -> Scene:
    def change(source: Any, iterator: Any) -> None:
        source[:] = [7, 8, 9]  # so that the loop ends
        iterator.__setstate__(1)

    return steps_over(lambda: [1, 2, 3], change)


def restore() -> None:
    sys.settrace(None)
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float32)
    torch.set_autocast_enabled("cpu", False)
    globals().pop("abs", None)


def observed(make: Callable[[], Scene]) -> Report:
    def world() -> World:
        restore()
        program, state = make()
        return World(program, [(X.clone(),)] * 3, Surroundings(__name__, __file__, lambda: {"state": state()}),
                     before=lambda number: restore(), undo=restore)

    traced = sys.gettrace()
    try:
        return compare_worlds(world, stator_compiler(dynamic=False))
    finally:
        restore()
        sys.settrace(traced)


@pytest.mark.parametrize("name", [*scene, *ITERATED])
def test_a_fact_that_the_callee_changes(name: str) -> None:
    report = require_same(observed({**scene, **ITERATED}[name]))
    assert report.breaks and not report.failures


@pytest.mark.parametrize("name", [name for name in scene if name != "a_tracing_function"])  # which is no guard's
def test_a_resume_point_without_guards_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of items left stays guarded, or the loop would not end."""
    whole = stages.lower

    def lowered(*args: Any) -> Any:
        program = whole(*args)
        program.checks = [check for check in program.checks if check[1] == Kind.FRESH_CALL]
        return program

    monkeypatch.setattr(stages, "lower", lowered)
    report = observed(scene[name])
    assert report.differences
