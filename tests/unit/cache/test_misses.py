"""A call that no entry takes: what is said of it, what the stance allows, and what is left alone."""

from __future__ import annotations

import types
from typing import Any

import pytest
import torch

import stator
from stator import _core, events
from stator.cache import dispatch, nested
from stator.errors import RecompileForbidden
from stator.guards.guard import Guard, Kind
from stator.guards.guard_semantics import explain, failing
from stator.source import Index, Local


def scaled(x: torch.Tensor, settings: dict[str, Any]) -> torch.Tensor:
    return x * len(settings["name"])


def test_the_old_value_and_the_new_one_are_told() -> None:
    compiled = stator.compile(scaled, backend="eager")
    compiled(torch.ones(2), {"name": "ab"})
    with events.record() as log:
        compiled(torch.ones(2), {"name": "abc"})
    told = next(event for event in log if isinstance(event, events.Recompile))
    assert (told.guard_text, told.old, told.new) == ("settings['name'] == 'ab'", "'ab'", "'abc'")
    assert told.filename == __file__ and told.line == scaled.__code__.co_firstlineno + 1


def test_the_warning_at_the_limit_names_both() -> None:
    compiled = stator.compile(scaled, backend="eager", recompile_limit=1)
    compiled(torch.ones(2), {"name": "ab"})
    with pytest.warns(RuntimeWarning, match="was 'ab', is 'abc'"):
        compiled(torch.ones(2), {"name": "abc"})


def test_the_warning_names_the_number_that_broke_a_relation() -> None:
    steps = [2]

    def bounded(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if steps[0] <= 70 else x

    compiled = stator.compile(bounded, backend="eager", recompile_limit=2)
    for steps[0] in (2, 3):
        compiled(torch.ones(2))
    with pytest.warns(RuntimeWarning, match=r"steps\[0\] <= 70 no longer holds: steps\[0\] is 200 \("):
        steps[0] = 200
        compiled(torch.ones(2))


def test_a_setting_of_torch_that_changes_at_the_limit() -> None:
    def named(x: torch.Tensor, name: str) -> torch.Tensor:
        return x + len(name)

    compiled = stator.compile(named, backend="eager", recompile_limit=2, isolate_recompiles=True)
    for name in ("a", "bb"):
        compiled(torch.ones(2, requires_grad=True), name)
    with torch.no_grad(), pytest.warns(RuntimeWarning, match="recompile limit"):
        found = compiled(torch.ones(2, requires_grad=True), "ccc")
    assert found.tolist() == [4.0, 4.0] and not found.requires_grad


def test_guards_that_fail_are_found_by_halves() -> None:
    guards = [Guard(Local("xs", 0), Kind.LEN, 7)] + [
        Guard(Index(Local("xs", 0), place), Kind.EQUALS, place % 3) for place in range(9)]
    for xs in ([0, 1, 2] * 3, [0] * 7, list(range(7)), []):
        assert failing(guards, (xs,)) == [guard for guard in guards if explain(guard, (xs,)) is not None]


def captures(compiled: Any, name: str) -> int:
    with events.record() as log:
        assert compiled(torch.ones(2), {"name": name}).tolist() == [float(len(name))] * 2
    return sum(isinstance(event, events.CaptureFinished) for event in log)


def test_stances() -> None:
    compiled = stator.compile(scaled, backend="eager")
    with stator.set_stance("eager_then_compile"):
        assert [captures(compiled, "ab") for _ in range(3)] == [0, 1, 0]
    with stator.set_stance("eager_on_recompile"):
        assert captures(compiled, "abc") == 0
    with stator.set_stance("fail_on_recompile"):
        assert captures(compiled, "ab") == 0
        with pytest.raises(RecompileForbidden, match="settings\\['name'\\] was 'ab', is 'abc'"):
            captures(compiled, "abc")
    assert captures(compiled, "abc") == 1


class Entries:
    """As much of an entry object as is asked."""

    def __init__(self, function: Any, tags: list[Any]) -> None:
        self.fn, self.tags, self.chosen = function, tags, []

    def entries(self) -> list[Any]:
        return [(None, None, tag) for tag in self.tags]

    def set_dispatch(self, program: Any) -> None:
        self.chosen.append(program)


def test_what_tells_many_entries_apart_is_read_first() -> None:
    def function(a: int, *rest: int, named: int = 0, **others: int) -> None: ...

    tags = [types.SimpleNamespace(guards=[Guard(Local("named", 1), Kind.EQUALS, i)]) for i in range(dispatch.FEWEST_ENTRIES)]
    few, many = Entries(function, tags[:-1]), Entries(function, tags)
    dispatch.update_dispatch(few)
    dispatch.update_dispatch(many)
    assert not few.chosen and type(many.chosen[0]) is _core.GuardProgram
    assert many.chosen[0].values((1, 7, (), {})) == (7,)
    assert dispatch.compiled_arity(many) == 4


@pytest.mark.parametrize(("graph", "left_alone"), [(None, True), (object(), False)])
def test_a_function_without_a_graph_is_left_alone(graph: Any, left_alone: bool) -> None:
    tag = types.SimpleNamespace(residual=types.SimpleNamespace(graph=graph))
    found = nested.NestedFunction(Entries(None, [tag]))
    for _ in range(3):
        found.judge()
    assert found.captures is not left_alone


def test_a_function_that_was_never_compiled_is_given_time() -> None:
    found = nested.NestedFunction(Entries(None, []))
    assert [(found.judge(), found.captures)[1] for _ in range(4)] == [True, True, False, False]


def test_another_rank_after_open_sizes() -> None:
    """A graph is looked for among those of other calls: one with open sizes may have dimensions that this has not."""
    compiled = stator.compile(lambda x: x.reshape(-1) + 1, backend="eager", fullgraph=True)
    with events.record() as log:
        for shape in ((2, 3), (4, 5), (4,), (2, 2, 2), (6, 7), (3,)):
            x = torch.ones(shape)
            assert torch.equal(compiled(x), x.reshape(-1) + 1)
    assert not [event for event in log if isinstance(event, events.InternalFailure)]
