"""options={"guard_filter_fn": f}: guards that the filter drops are not checked; the others are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator
from stator.errors import OptionTypeError, OptionValueError

FACTOR = 2
LAYER = torch.nn.Linear(2, 2)


def program(x: torch.Tensor, n: int) -> torch.Tensor:
    return LAYER(x) * FACTOR + n


def compiled_with(keep: Callable[[Any], Any]) -> tuple[Any, list[Any]]:
    graphs: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    return stator.compile(program, backend=backend, dynamic=False, options={"guard_filter_fn": keep}), graphs


def test_only_the_dropped_guards_are_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    fn, graphs = compiled_with(torch.compiler.skip_guard_on_globals_unsafe)
    x = torch.ones(1, 2)
    before = fn(x, 1)
    monkeypatch.setitem(globals(), "FACTOR", 3)
    assert torch.equal(fn(x, 1), before) and len(graphs) == 1  # the guard on FACTOR is gone
    assert torch.equal(fn(x, 2), program(x, 2)) and len(graphs) == 2  # the one on n is not


@pytest.mark.parametrize(("keep", "count"), [
    (torch.compiler.skip_all_guards_unsafe, 1), (torch.compiler.keep_tensor_guards_unsafe, 2),
    (torch.compiler.keep_portable_guards_unsafe, 2), (torch.compiler.skip_guard_on_all_nn_modules_unsafe, 3),
    (torch.compiler.skip_guard_on_inbuilt_nn_modules_unsafe, 3), (lambda guards: [True] * len(guards), 3)])
def test_filters_of_torch(keep: Callable[[Any], Any], count: int) -> None:
    fn, graphs = compiled_with(keep)
    fn(torch.ones(1, 2), 1)
    fn(torch.ones(3, 2), 1)
    fn(torch.ones(3, 2), 2)
    assert len(graphs) == count


def test_a_filter_sees_names_values_and_kinds() -> None:
    seen: dict[tuple[str, str], Any] = {}

    def keep(guards: Any) -> list[bool]:
        seen.update({(each.name, each.guard_type): each for each in guards})
        return [True] * len(guards)

    x = torch.ones(1, 2)
    compiled_with(keep)[0](x, 1)
    assert seen["x", "TENSOR_MATCH"].value is x and not seen["x", "TENSOR_MATCH"].is_global
    assert seen["n", "EQUALS_MATCH"].value == 1
    assert seen["FACTOR", "EQUALS_MATCH"].is_global and seen["FACTOR", "EQUALS_MATCH"].has_value
    assert ("torch's global state", "GLOBAL_STATE") in seen
    weight = next(each for (name, kind), each in seen.items() if name.endswith("weight") and kind == "TENSOR_MATCH")
    assert weight.orig_guard.source.is_unspecialized_builtin_nn_module()


def test_a_bad_filter_is_named() -> None:
    with pytest.raises(OptionValueError, match="gave 1 answers"):
        compiled_with(lambda guards: [True])[0](torch.ones(1, 2), 1)
    with pytest.raises(OptionValueError, match="raised ZeroDivisionError"):
        compiled_with(lambda guards: 1 // 0)[0](torch.ones(1, 2), 1)
    with pytest.raises(OptionTypeError, match="guard_filter_fn"):
        stator.compile(program, options={"guard_filter_fn": 3})
